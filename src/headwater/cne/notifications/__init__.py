"""Notifications as JSON documents and as events. No I/O."""
