"""The management entities of the server."""
