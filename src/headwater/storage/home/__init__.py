"""Logs committed at a home before they are stored here."""
