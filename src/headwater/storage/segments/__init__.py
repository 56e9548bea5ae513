"""Segment files, the files beside them, and recovery after a crash."""
