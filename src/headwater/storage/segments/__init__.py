"""Segment files, the files next to them, and recovery after a crash."""
