"""A copy from one server to another: every event once and in order, though either is killed between two runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.flight.client import BulkClient, Ticket
from headwater.spark.jobs import copy
from headwater.spark.pipeline.run import Run, Server, Summary
from tests.ports import free_ports
from tests.server.running import RunningServer
from tests.server.starting import PROGRAM

COLUMNS = ["type", "data", "tags", "id"]


def orders(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "type": [f"Order{n % 3}" for n in numbers],
            "data": [f'{{"number": {n}}}'.encode() for n in numbers],
            "tags": [[f"order:{n % 50}", "region:north"] for n in numbers],
            "id": [f"order-{n}" for n in numbers],
        }
    )


def content(url: str, log: str = "orders") -> list[tuple[object, ...]]:
    """All events of a log in order, but for what the log adds."""
    with BulkClient(url) as bulk:
        batches = [batch.select(COLUMNS) for batch in bulk.read(Ticket(log))]
    rows = pa.Table.from_batches(batches).to_pylist()
    return [tuple(map(str, row.values())) for row in rows]


class Pair:
    """Two servers, each with a directory and a port of its own; either can be killed and started again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        ports = free_ports(2)
        self.urls = [f"grpc://127.0.0.1:{port}" for port in ports]
        self._running = [self._start(number, port) for number, port in enumerate(ports)]
        self._ports = ports

    def _start(self, number: int, port: int) -> RunningServer:
        home = self._directory / str(number)
        home.mkdir(exist_ok=True)
        flight = ("--flight-enabled", "true", "--flight-port", str(port))
        server = RunningServer("--data", "data", "--log", "orders", *flight, cwd=home, program=PROGRAM)
        server.further_url("grpc")
        return server

    def again(self, number: int) -> None:
        """Kill one, and start it again over what it has: as slowly as a server starts, so that its port is free."""
        self._running[number].process.kill()
        self._running[number].__exit__()
        self._running[number] = self._start(number, self._ports[number])

    def close(self) -> None:
        for server in self._running:
            server.__exit__()


@contextmanager
def pair(directory: Path) -> Iterator[Pair]:
    servers = Pair(directory)
    try:
        yield servers
    finally:
        servers.close()


def copied(spark: SparkSession, servers: Pair, checkpoint: Path, **how: object) -> Summary:
    here, there = servers.urls
    given: dict[str, Any] = {"events_per_batch": 1100, **how}
    options = copy.Copy(source="orders", target="orders", target_url=there, **given)
    with Run("copy", server=Server(url=here), checkpoint=str(checkpoint)) as run:
        assert there in "\n".join(copy.plan(options, run))
        return copy.run(spark, options, run)


@pytest.mark.timeout(600)
def test_a_copy_to_another_server_goes_on_where_it_stopped_and_has_every_event_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pair(tmp_path) as servers:
        here, there = servers.urls
        with BulkClient(here) as source, BulkClient(there) as target:
            source.append("orders", orders(0, 2000))
            target.append("orders", orders(3, 1))  # somebody brought one event before
        assert copied(spark, servers, tmp_path / "checkpoint").events == 2000
        brought = content(here)[3]
        assert content(there) == [brought, *(row for row in content(here) if row != brought)]
        servers.again(1)
        with BulkClient(here) as source:
            source.append("orders", orders(2000, 1500))
        servers.again(0)
        assert copied(spark, servers, tmp_path / "checkpoint").events == 1500
        assert content(there) == [brought, *(row for row in content(here) if row != brought)]
        assert len(content(here)) == 3500
        again = copied(spark, servers, tmp_path / "another", on_duplicate="skip", events_per_batch=3500)
        assert again.events == 3500  # all are there
        assert len(content(there)) == 3500


@pytest.mark.timeout(600)
def test_a_copy_takes_what_matches_and_says_where_its_target_has_no_such_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pair(tmp_path) as servers:
        here, there = servers.urls
        with BulkClient(here) as source:
            source.append("orders", orders(0, 300))
        copied(spark, servers, tmp_path / "checkpoint", query="type=Order1 tag=region:north")
        assert content(there) == [row for row in content(here) if row[0] == "Order1"]
        options = copy.Copy(source="orders", target="elsewhere", target_url=there)
        with (
            Run("copy", server=Server(url=here), checkpoint=str(tmp_path / "other")) as run,
            pytest.raises(Exception, match="elsewhere"),
        ):
            copy.plan(options, run)
