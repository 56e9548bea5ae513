"""Appends: one writer owns order and time."""
