"""A home in PostgreSQL."""
