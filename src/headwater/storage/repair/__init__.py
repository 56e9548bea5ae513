"""Check and repair of a directory that no server uses."""
