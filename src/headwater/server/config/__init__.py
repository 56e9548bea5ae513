"""Settings of the server and their sources."""
