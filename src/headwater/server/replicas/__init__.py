"""This server as a member of its home: roles, replication and forwarding."""
