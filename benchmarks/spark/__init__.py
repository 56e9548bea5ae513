"""Spark against Headwater, beside Spark's own Parquet reader, Kafka with Spark's connector, and a row-wise source."""
