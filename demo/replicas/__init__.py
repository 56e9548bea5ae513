"""The demo of several servers: three of one home in PostgreSQL, the flights, and a kill -9 of the primary and of its
database in the middle of them.
"""
