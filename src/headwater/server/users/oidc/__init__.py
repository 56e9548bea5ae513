"""Logins by tokens of an OpenID Connect issuer: its settings, its keys, and the users of its tokens."""
