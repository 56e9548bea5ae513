"""Notifications, spans and threads of the server."""
