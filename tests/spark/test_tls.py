"""A server with a certificate: Spark reads and writes over TLS, in the driver and in its workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader, SparkSession

from headwater.flight.client import BulkClient, Ticket
from tests.amqp.certificates import Authority
from tests.server.running import RunningServer

from .conftest import numbers

WITH_FLIGHT = ("--flight-enabled", "true", "--flight-port", "0")


class Secured(NamedTuple):
    """A server's address over TLS, and two authorities: the one that vouches for it, and another."""

    url: str
    ca_file: str
    other_ca_file: str


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("tls")
    for name in ("ours", "theirs"):
        (directory / name).mkdir()
    ours, theirs = Authority(directory / "ours", "our authority"), Authority(directory / "theirs", "another authority")
    certificate = ours.issue("server", "DNS:localhost,IP:127.0.0.1")
    tls = ("--tls-certificate", str(certificate.file), "--tls-key", str(certificate.key))
    arguments = ("--data", "data", "--log", "orders:2", *tls, *WITH_FLIGHT)
    with RunningServer(*arguments, cwd=directory, context=ours.context()) as server:
        yield Secured(server.further_url("grpc+tls"), str(ours.own.file), str(theirs.own.file))


def reader(spark: SparkSession, url: str, **options: str) -> DataFrameReader:
    return spark.read.format("headwater").options(url=url, log="orders", retries="0", **options)


def test_spark_writes_and_reads_over_tls(spark: SparkSession, secured: Secured) -> None:
    frame = spark.range(1, 1001).selectExpr(
        "'Placed' AS type", "CAST(CAST(id AS STRING) AS BINARY) AS data", "CAST(id AS STRING) AS id", "'shop' AS source"
    )
    where = {"url": secured.url, "log": "orders", "caFile": secured.ca_file}
    frame.repartition(3).write.format("headwater").options(**where).mode("append").save()

    read = reader(spark, secured.url, caFile=secured.ca_file, splitBytes="16k").load()
    assert numbers(read) == list(range(1, 1001))
    assert {row.id for row in read.collect()} == {str(number) for number in range(1, 1001)}
    by_name = reader(spark, secured.url.replace("127.0.0.1", "localhost"), caFile=secured.ca_file).load()
    assert by_name.count() == 1000
    assert reader(spark, secured.url, tlsVerify="false").load().count() == 1000
    with BulkClient(secured.url, ca_file=secured.ca_file) as bulk:
        assert sum(batch.num_rows for batch in bulk.read(Ticket("orders"))) == 1000


@pytest.mark.parametrize("is_known", [False, True], ids=["the system's authorities", "another authority"])
def test_a_server_that_nobody_trusted_vouches_for_is_told(
    spark: SparkSession, secured: Secured, is_known: bool
) -> None:
    options = {"caFile": secured.other_ca_file} if is_known else {}
    with pytest.raises(PySparkException, match=r"no answer from grpc\+tls://.*(?i:certificate).*verify"):
        reader(spark, secured.url, **options).load().count()


def test_a_ca_file_that_is_none_and_a_server_that_is_spoken_to_without_tls_are_told(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    with pytest.raises(PySparkException, match=r"option caFile.*missing\.pem"):
        reader(spark, secured.url, caFile=str(tmp_path / "missing.pem")).load().count()
    plain = secured.url.replace("grpc+tls", "grpc")
    with pytest.raises(PySparkException, match=r"no answer from grpc://"):
        reader(spark, plain, timeout="5s").load().count()
