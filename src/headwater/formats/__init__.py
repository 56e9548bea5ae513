"""Encodings that several front ends share: CloudEvents, problem documents, JSON with error locations. No I/O."""
