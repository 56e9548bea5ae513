"""What the Delta tables of all pipelines share: one way to open a table, and one to commit to it.

Each commit of ours carries a digest of the whole state that it makes (`digest`, `marks`), and each open compares it
with what the Delta library has read (`table`). No Spark here.
"""
