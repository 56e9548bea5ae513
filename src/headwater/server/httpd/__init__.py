"""The HTTP server: connections, requests, WebSockets. It implements ASGI, and does not depend on any front end."""
