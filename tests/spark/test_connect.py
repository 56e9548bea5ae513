"""Spark Connect: the same source, found by the server that runs the plan. In a process of its own, as a session of
this kind changes what pyspark is for the whole process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from headwater.core.local import LocalLog
from headwater.storage.memory import MemoryStore
from tests.night import IS_NIGHT

from .conftest import spark_environment

CLIENT = """
import json, sys
from pyspark.sql import SparkSession

url, directory, has_streams = sys.argv[1:]
spark = (
    SparkSession.builder.remote("local[2]")
    .config("spark.driver.memory", "1g")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.python.filterPushdown.enabled", "true")
    .getOrCreate()
)
frame = spark.read.format("headwater").options(url=url, log="orders", filterPushdown="true").load()
found = {"kind": type(frame).__module__, "count": frame.count()}
found["paid"] = frame.where("type = 'Paid' AND sequence_number <= 30").count()
spark.sql(f"CREATE TEMPORARY VIEW ev USING headwater OPTIONS (url '{url}', log 'orders', query 'type=Paid')")
found["view"] = spark.sql("SELECT count(*) AS n FROM ev").first().n
if has_streams == "True":
    query = (
        spark.readStream.format("headwater").options(url=url, log="orders", maxEventsPerTrigger="60").load()
        .writeStream.format("parquet").option("checkpointLocation", directory + "/checkpoint")
        .trigger(availableNow=True).start(directory + "/out")
    )
    query.awaitTermination(120)
    appending = (
        spark.readStream.format("headwater").options(url=url, log="orders", columns="type,data").load()
        .writeStream.format("headwater").options(url=url, log="target", checkpointLocation=directory + "/appending")
    )
    for _ in range(2):
        assert appending.trigger(availableNow=True).start().awaitTermination(120)
    found["streamed"] = spark.read.parquet(directory + "/out").select("sequence_number").distinct().count()
else:
    read = spark.read.format("headwater").options(url=url, log="orders").load().select("type", "data")
    read.coalesce(1).write.format("headwater").mode("append").options(url=url, log="target").save()
print("FOUND " + json.dumps(found))
spark.stop()
"""


def test_reads_views_writes_and_streams_work_through_connect(
    url: str, orders: LocalLog, store: MemoryStore, tmp_path: Path
) -> None:
    """By day without the streams, of which each starts Python processes of its own."""
    target = store.create("target")
    spark_environment()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_REMOTE")}

    command = [sys.executable, "-c", CLIENT, url, str(tmp_path), str(IS_NIGHT)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)

    answer = next((line for line in ran.stdout.splitlines() if line.startswith("FOUND ")), None)
    assert answer is not None, ran.stdout + ran.stderr
    found = json.loads(answer.removeprefix("FOUND "))
    assert found.pop("kind").startswith("pyspark.sql.connect")
    streamed = {"streamed": 100} if IS_NIGHT else {}
    assert found == {"count": 100, "paid": 10, "view": 33} | streamed
    assert [event.data for event in target.read()] == [event.data for event in orders.read()]
