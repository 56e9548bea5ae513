"""Spark looks for data sources in modules named so: `spark.read.format("headwater")` works without a register call."""
