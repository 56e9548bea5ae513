"""System calls, locks, free space and small checked files."""
