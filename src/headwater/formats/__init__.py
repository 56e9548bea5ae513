"""Encodings that several front ends share: CloudEvents, problem documents, JSON that says where it is wrong. No I/O."""
