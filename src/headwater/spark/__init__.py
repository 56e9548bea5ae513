"""The data pipeline on Spark: the data source `headwater`, and the pipelines built on it. Alone to import pyspark."""
