"""Immutable views of a log, for this process and others."""
