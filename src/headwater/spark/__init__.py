"""The data pipeline on Spark: the data source `headwater`, and the pipelines built on it. Alone to import pyspark."""

from .java import java_home
from .sessions import session

__all__ = ["java_home", "session"]
