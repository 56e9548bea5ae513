"""Frames, the bytes of one commit: encoding, reading, checksums."""
