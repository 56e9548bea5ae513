"""Positions of receivers and groups, and their storage."""
