"""The HTTP server: connections, requests, WebSockets. It implements ASGI and knows no room."""
