"""Limits on the values of a body, before and while it is parsed."""
