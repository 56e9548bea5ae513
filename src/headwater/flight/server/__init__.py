"""The Flight server, on a port to the logs."""
