"""Spans of what the server does (OpenTelemetry), for a collector of the operator's; off by default."""
