"""This server among the servers of its home."""
