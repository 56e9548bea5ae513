"""Notifications of the server, in the form that clients get."""
