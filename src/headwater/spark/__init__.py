"""The Spark data pipeline: the data source `headwater`, and the pipelines built on it. The only package that imports
pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .session.java import java_home
from .session.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["java_home", "register", "session"]


def register(spark: SparkSession, url: str | None = None, **how: Any) -> dict[str, str]:
    """Create a table of each log for SQL, `headwater.orders` for log `orders`; see
    `headwater.spark.source.catalog.register`.
    """
    from .source.catalog import register as made  # it imports pyspark, which may not be installed

    return made(spark, url, **how)
