"""Arrow Flight: bulk columnar reads and writes of logs, for Spark, DuckDB, Polars and everything that supports
Arrow.
"""
