"""Logins by tokens of an OpenID Connect issuer: its settings, its keys, and the users that its tokens speak for."""
