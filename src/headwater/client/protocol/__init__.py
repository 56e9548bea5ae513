"""Requests and answers of both clients, without I/O."""
