"""The calls of the Flight client."""
