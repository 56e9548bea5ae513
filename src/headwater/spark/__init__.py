"""The data pipeline on Spark: the data source `headwater`, and the pipelines built on it. Alone to import pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .session.java import java_home
from .session.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["java_home", "register", "session"]


def register(spark: SparkSession, url: str | None = None, **how: Any) -> dict[str, str]:
    """Make a table of each log for SQL, `headwater.orders` of log `orders`; see
    `headwater.spark.source.catalog.register`."""
    from .source.catalog import register as made  # it takes pyspark, which may not be installed

    return made(spark, url, **how)
