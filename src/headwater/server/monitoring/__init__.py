"""Metrics, notifications, spans and the watchdog of the event loop."""
