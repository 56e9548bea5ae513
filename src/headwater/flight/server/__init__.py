"""The Flight server, written against an interface to the logs."""
