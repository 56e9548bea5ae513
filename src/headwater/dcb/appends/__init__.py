"""Appends, one module for each form of body."""
