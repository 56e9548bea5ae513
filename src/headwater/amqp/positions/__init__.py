"""Positions of receivers and groups, and how they are stored."""
