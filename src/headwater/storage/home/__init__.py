"""Logs that are committed at a home before they are stored here."""
