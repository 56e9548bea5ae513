"""Check and repair of a directory not in use by a server."""
