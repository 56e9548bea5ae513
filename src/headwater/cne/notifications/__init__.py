"""Notifications as documents and as events. No I/O."""
