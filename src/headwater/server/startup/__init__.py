"""Ports, logs and limits, opened or checked at the start."""
