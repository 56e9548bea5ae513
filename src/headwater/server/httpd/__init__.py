"""The HTTP server: connections, requests, WebSockets. It knows ASGI and no room."""
