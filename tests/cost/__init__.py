"""What each way in costs: whatever a peer sends, the work grows with its bytes and no faster, and nobody else waits."""
