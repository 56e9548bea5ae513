"""Ports, logs and limits that a start opens or checks."""
