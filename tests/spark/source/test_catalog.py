"""Logs as tables of SQL, in a session and by the pipeline `sql`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from headwater.core.errors import InvalidInput, LogNotFound
from headwater.core.local import LocalLog
from headwater.spark import register
from headwater.spark.jobs.sql import Sql
from headwater.spark.options import InvalidOption
from headwater.spark.pipeline.run import Server
from headwater.spark.pipelines import load
from headwater.spark.source.catalog import ddl, quoted
from headwater.storage.memory import MemoryStore

from ..conftest import fill

SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}, "not there": {"type": "string"}}})


def tables(spark: SparkSession, database: str = "headwater") -> list[str]:
    return sorted(row.tableName for row in spark.sql(f"SHOW TABLES IN {database}").collect() if not row.isTemporary)


def test_logs_are_tables_of_sql_and_each_query_sees_what_is_there(
    spark: SparkSession, url: str, orders: LocalLog, store: MemoryStore
) -> None:
    fill(store.create("Shop-1"), 10)

    assert register(spark, url, payload_schemas={"orders": SCHEMA}) == {"orders": "orders", "shop_1": "Shop-1"}

    assert tables(spark) == ["orders", "shop_1"]
    ask = "SELECT count(*) AS n, sum(payload.n) AS total FROM headwater.orders WHERE type = 'Paid'"
    assert spark.sql(ask).first() == (33, sum(range(3, 101, 3)))
    fill(orders, 10)
    assert spark.sql(ask).first() == (36, sum(range(3, 111, 3)))
    both = "SELECT count(*) FROM headwater.orders o JOIN headwater.shop_1 s USING (sequence_number)"
    assert spark.sql(f"{both} WHERE o.type = 'Paid' AND s.log = 'Shop-1'").first()[0] == 3

    store.delete("Shop-1")
    fill(store.create("returns"), 10)
    assert register(spark, url, logs="orders,ret*", endingPosition=10) == {"orders": "orders", "returns": "returns"}
    assert tables(spark) == ["orders", "returns"], "what is no log any more is no table"
    assert spark.sql("SELECT count(data), max(log) FROM headwater.orders").first() == (10, "orders")
    for _ in range(2):
        assert register(spark, url, logs="orders", database="Sales") == {"orders": "orders"}
    assert tables(spark, "Sales") == ["orders"]


def test_a_table_with_options_is_read_by_queries_and_streams(
    spark: SparkSession, url: str, orders: LocalLog, tmp_path: Path
) -> None:
    spark.sql("CREATE DATABASE made")
    options = f"url '{url}', log 'orders', startingPosition 11"
    spark.sql(f"CREATE TABLE made.orders USING headwater OPTIONS ({options})")
    spark.sql(f"CREATE TABLE made.typed USING headwater OPTIONS ({options}, payloadSchema 'n int, `it''s` string')")
    assert spark.sql("SELECT count(*) FROM made.orders").first()[0] == 90
    fill(orders, 10)
    assert spark.sql("SELECT count(data) FROM made.orders WITH (endingPosition = 30)").first()[0] == 20
    assert spark.sql("SELECT sum(payload.n) FROM made.typed").first()[0] == sum(range(11, 111))
    for at, columns in enumerate(("payload, sequence_number", "payload", "sequence_number, payload, _malformed")):
        typed = "payloadSchema '`it, ``s` string, n int'"
        spark.sql(f"CREATE TABLE made.typed{at} USING headwater OPTIONS ({options}, {typed}, columns '{columns}')")
        assert spark.table(f"made.typed{at}").columns == columns.split(", ")
        assert spark.sql(f"SELECT sum(payload.n) FROM made.typed{at}").first()[0] == sum(range(11, 111))
    spark.sql(f"CREATE TABLE made.listed (payload struct<n: int>) USING headwater OPTIONS ({options})")
    with pytest.raises(Exception, match="keeps its options only if it was created without a list of columns"):
        spark.sql("SELECT * FROM made.listed").collect()
    query = (
        spark.readStream.table("made.orders").writeStream.format("memory").queryName("streamed")
        .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    assert spark.sql("SELECT count(DISTINCT sequence_number) FROM streamed").first()[0] == 100
    for wrong, message in (
        ("log 'orders', token 'hunter2'", "a table would expose it"),
        ("lag 'orders'", "did you mean log"),
    ):
        with pytest.raises(AnalysisException, match=message) as error:
            spark.sql(f"CREATE TABLE made.wrong USING headwater OPTIONS ({wrong})")
        assert "hunter2" not in str(error.value)


def test_what_cannot_be_a_table_is_refused_before_any_is_made(
    spark: SparkSession, url: str, orders: LocalLog, store: MemoryStore
) -> None:
    store.create("a-b")
    store.create("a_b")

    with pytest.raises(InvalidInput, match="'a-b' and 'a_b' are both named a_b in SQL"):
        register(spark, url, database="other")
    with pytest.raises(LogNotFound, match="nowhere"):
        register(spark, url, logs="orders,nowhere", database="other")
    with pytest.raises(InvalidInput, match=r"payload_schemas: no log 'order' is registered; did you mean orders\?"):
        register(spark, url, logs="orders", payload_schemas={"order": "n int"}, database="other")
    with pytest.raises(InvalidOption, match="option token: a view would expose it; set HEADWATER_TOKEN"):
        register(spark, url, logs="orders", database="other", token="hunter2")
    with pytest.raises(InvalidOption, match="option filterPushdown: a table of a log has no such option"):
        register(spark, url, logs="orders", database="other", filterPushdown=True)
    for schema, message in (
        ("n int NOT NULL", "payload.n: events may not contain it"),
        ("n map<int, int>", "payload.n: expected string"),
    ):
        with pytest.raises(InvalidInput, match=message):
            register(spark, url, logs="orders", payload_schemas={"orders": schema}, database="other")
    with pytest.raises(ParseException, match="NOSUCHTYPE"):
        register(spark, url, logs="orders", payload_schemas={"orders": "n nosuchtype"}, database="other")
    with pytest.raises(InvalidInput, match="database: expected letters, digits and _, got 'a b'"):
        register(spark, url, logs="orders", database="a b")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        tables(spark, "other")


def test_nothing_that_somebody_else_made_is_replaced_or_dropped(
    spark: SparkSession, url: str, orders: LocalLog
) -> None:
    register(spark, url, logs="orders", database="shared")
    spark.sql("CREATE VIEW shared.mine AS SELECT 1 AS one")
    spark.sql("CREATE TEMPORARY VIEW passing AS SELECT 3 AS three")
    assert register(spark, url, logs="orders", database="shared") == {"orders": "orders"}
    spark.sql("DROP VIEW shared.orders")
    spark.sql("CREATE VIEW shared.orders AS SELECT 2 AS two")

    with pytest.raises(InvalidInput, match=r"shared\.orders exists and is not a view of a log"):
        register(spark, url, logs="orders", database="shared")
    assert tables(spark, "shared") == ["mine", "orders"]
    assert spark.sql("SELECT two FROM shared.orders").first() == (2,)


def test_a_question_is_asked_by_a_command_and_answered_as_asked_for(
    spark: SparkSession, url: str, orders: LocalLog, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(query: str, **options: object) -> tuple[list[str], object]:
        summary = load("sql").start(Sql(query=query, **options), spark, server=Server(url))
        return capsys.readouterr().out.splitlines(), summary.details

    count = "SELECT type, count(*) AS events FROM headwater.orders GROUP BY type ORDER BY type"
    assert ask(count) == (
        ["type    events", "------  ------", "Paid    33", "Placed  67"],
        {"rows": 2, "is_all": True},
    )
    assert ask(count, format="csv", rows_max=1) == (["type,events", "Paid,33"], {"rows": 1, "is_all": False})
    after = "headwater.orders s ON s.sequence_number = o.sequence_number + 1"
    twice = f"SELECT o.type, s.type FROM headwater.orders o JOIN {after}"
    assert ask(f"{twice} ORDER BY o.sequence_number", format="csv", rows_max=2)[0] == [
        "type,type", "Placed,Placed", "Placed,Paid"
    ]  # fmt: skip
    with pytest.raises(InvalidInput, match="--query: two columns are called 'type'"):
        ask(twice, format="ndjson")
    typed = (
        "SELECT payload, data, recorded_at FROM (SELECT *, encode('é', 'utf-8') AS data FROM headwater.orders) LIMIT 1"
    )
    rows, _ = ask(typed, format="ndjson", payload_schema=("orders=n bigint",))
    assert [json.loads(row) for row in rows] == [
        {"payload": {"n": 1}, "data": "é", "recorded_at": "2023-11-14T22:13:20Z"}
    ]


def test_a_question_needs_the_variables_where_somebody_asks(url: str, orders: LocalLog) -> None:
    with pytest.raises(InvalidInput, match="set the variables HEADWATER_FLIGHT_URL, and HEADWATER_TOKEN or"):
        load("sql").start(Sql(query="SELECT 1"), spark=object(), server=Server(url, token="hunter2"))
    for given, message in (("orders", "expected LOG=COLUMNS, got 'orders'"), ("=n int", "LOG=COLUMNS")):
        with pytest.raises(InvalidInput, match=message):
            Sql(query="SELECT 1", payload_schema=(given,))


def test_texts_and_names_are_quoted_for_sql() -> None:
    assert quoted("it's a \\ path") == "'it\\'s a \\\\ path'"
    shape = StructType(
        [StructField("a b`c", ArrayType(StructType([StructField("n", LongType())]))), StructField("s", StringType())]
    )
    assert ddl(shape) == "struct<`a b``c`: array<struct<`n`: bigint>>, `s`: string>"
