"""Homes shared by several servers: where their logs are committed, which server appends, and failover."""
