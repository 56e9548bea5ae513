"""Shared code for the Delta tables of all pipelines: one way to open a table, and one to commit to it.

Each of our commits carries a digest of the whole resulting state (`digest`, `marks`), and each open compares it with
what the Delta library has read (`table`). No Spark here.
"""
