"""Reads and subscriptions."""
