"""Readers of Spark behind a connection that breaks: a batch has all of its events, or fails; it is never short."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headwater.formats.clients import retry
from headwater.formats.clients.retry import ServerUnreachable
from headwater.spark.columns.schema import EVENT_SCHEMA
from headwater.spark.source.batch import BatchReader
from headwater.spark.source.options import batch_options
from headwater.spark.source.stream import StreamReader
from headwater.storage.memory import MemoryStore
from tests.client.served_memory import CuttingProxy
from tests.flight import memory_backend

from ..conftest import fill, numbers

EVENTS, PAGE_EVENTS = 300, 50
ALL = list(range(1, EVENTS + 1))
DATA = 0
"""The type of an HTTP/2 frame that has a piece of a stream."""
WAYS = {"end": False, "reset": True}
Read = Callable[[dict[str, str]], list[int]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches in a stream, and short pauses."""
    monkeypatch.setattr(memory_backend, "PAGE_EVENTS", PAGE_EVENTS)
    monkeypatch.setattr(retry, "PAUSE_S_MIN", 0.001)


@pytest.fixture
def port(store: MemoryStore, url: str) -> int:
    """Of the server."""
    fill(store.create("orders"), EVENTS)
    return int(url.rpartition(":")[2])


def by_a_batch(options: dict[str, str]) -> list[int]:
    reader = BatchReader(batch_options(options))
    slices = reader.partitions()
    return sorted(n for each in slices for batch in reader.read(each) for n in batch["sequence_number"].to_pylist())


def by_a_stream(options: dict[str, str]) -> list[int]:
    reader = StreamReader(options, EVENT_SCHEMA)
    start = reader.initialOffset()
    slices = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    return sorted(n for each in slices for batch in reader.read(each) for n in batch["sequence_number"].to_pylist())


def options_of(proxy: CuttingProxy, **more: str) -> dict[str, str]:
    return {"url": proxy.url.replace("http://", "grpc://"), "log": "orders", **more}


def cuts_of(port: int, read: Read) -> list[int]:
    """Where each piece of a stream ends among what the server sends, and one place within it; the last byte."""
    with closing(CuttingProxy(port, [])) as proxy:
        assert read(options_of(proxy)) == ALL
        sent = bytes(proxy.answered)
    cuts, at = [], 0
    while at + 9 <= len(sent):
        size, kind = int.from_bytes(sent[at : at + 3]), sent[at + 3]
        at += 9 + size
        if kind == DATA and size:
            cuts += [at - size // 2, at]
    return [*cuts, len(sent) - 1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("read", [by_a_batch, by_a_stream])
def test_what_is_read_over_a_cut_connection_is_whole_or_fails(port: int, read: Read, way: str) -> None:
    cuts = cuts_of(port, read)
    failed = 0
    for cut in cuts:
        with closing(CuttingProxy(port, [cut], resets=WAYS[way])) as proxy:
            assert read(options_of(proxy)) == ALL, cut
        with closing(CuttingProxy(port, [cut], resets=WAYS[way])) as proxy:
            try:
                assert read(options_of(proxy, retries="0")) == ALL, cut
            except ServerUnreachable:
                failed += 1
    assert failed > len(cuts) // 2, "most of it is needed"


def test_a_query_over_a_cut_connection_has_all_or_fails(spark: SparkSession, port: int) -> None:
    cut = cuts_of(port, by_a_batch)[-2] // 2
    for retries, expected in (("5", ALL), ("0", None)):
        with closing(CuttingProxy(port, [cut] * 3)) as proxy:
            frame = spark.read.format("headwater").options(**options_of(proxy, retries=retries)).load()
            try:
                found = numbers(frame)
            except PySparkException as error:
                assert "no answer from" in str(error)
                found = None
            assert found == expected
            assert len(proxy.cuts) < 3
