"""Appends: one writer determines order and time."""
