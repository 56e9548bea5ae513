"""Requests and answers of both clients. No I/O."""
