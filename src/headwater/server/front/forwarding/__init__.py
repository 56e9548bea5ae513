"""A replica forwards requests and WebSockets that only the primary can serve: one hop, over HTTP/1.1."""
