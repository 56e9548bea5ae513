"""Answers, addresses and retries, shared by all HTTP clients."""
