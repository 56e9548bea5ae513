"""Delta's own package on the Spark that it was made for: `client.py TABLE [VERSION ...]`.

It writes one JSON object for the table, read as a batch, as a stream, and at each version that is named.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

JARS = Path(sys.prefix).parent / "jars"


def main(table: str, *versions: str) -> None:
    """See the module."""
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(map(str, sorted(JARS.glob("*.jar")))))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    batch = spark.read.format("delta").load(table)
    found = {
        "schema": [[field.name, field.dataType.simpleString()] for field in batch.schema],
        "batch": rows(batch),
        "day": rows(batch.where("date = (SELECT min(date) FROM delta.`" + table + "`)")),
        "versions": {version: counted(spark, table, version) for version in versions},
        "stream": streamed(spark, table),
    }
    print(json.dumps(found))
    spark.stop()


def rows(frame: DataFrame) -> list[str]:
    """Each row as JSON, in the order of the numbers."""
    return [row.json for row in frame.orderBy("sequence_number").selectExpr("to_json(struct(*)) as json").collect()]


def counted(spark: SparkSession, table: str, version: str) -> int:
    """How many events a version has."""
    return spark.read.format("delta").option("versionAsOf", version).load(table).count()


def streamed(spark: SparkSession, table: str) -> list[int]:
    """The numbers that a stream of the table gives."""
    with tempfile.TemporaryDirectory() as checkpoint:
        frame = spark.readStream.format("delta").option("ignoreChanges", "true").load(table)
        query = (
            frame.select("sequence_number").writeStream.format("memory").queryName("seen")
            .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return sorted(row.sequence_number for row in spark.table("seen").collect())


if __name__ == "__main__":
    main(*sys.argv[1:])
