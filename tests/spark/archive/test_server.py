"""An archiver beside a real server: who sees it, what trims behind it, and who may run it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.client import RemoteLog, connect
from headwater.core import Event, LogSettings
from headwater.core.access import Forbidden
from headwater.flight.client import BulkClient
from headwater.flight.wire import Ticket
from headwater.spark.archive.archiver import Archiver
from headwater.spark.archive.snapshot import snapshot

from ...server.running import RunningServer, headwater
from ..archive_tables import step
from ..processes import wait_for

SERVING = ("--data", "data", "--log", "orders", "--flight-enabled", "true", "--flight-port", "0")


@pytest.fixture
def server(tmp_path) -> Iterator[RunningServer]:
    with RunningServer(*SERVING, cwd=tmp_path) as server:
        yield server


@pytest.fixture
def log(server) -> Iterator[RemoteLog]:
    """It forgets what was acknowledged."""
    with connect(server.url) as client:
        client.change("orders", LogSettings(retention_until_acknowledged=True))
        yield client.log("orders")


@pytest.fixture
def client(server) -> Iterator[BulkClient]:
    with BulkClient(server.further_url("grpc")) as client:
        yield client


def fill(log: RemoteLog, count: int, data: bytes = b"{}") -> None:
    log.append([Event("ORDER_NEW", data) for _ in range(count)])


def test_archiver_is_listed_among_the_consumers_with_how_far_it_is_behind(server, log, client, tmp_path):
    fill(log, 30)
    step(Archiver.open(client, "orders", tmp_path / "orders"), client, upto=20)
    listed = headwater("consumers", "list", "orders", "--url", server.url, "--json", cwd=tmp_path)
    (consumer,) = json.loads(listed.stdout)
    assert (consumer["owner"], consumer["component"]) == ("spark", "ARCHIVER")
    assert (consumer["acknowledged"], consumer["behind"]) == (20, 10)


def test_futoin_knows_the_archiver_as_a_registered_consumer(server, log, client, tmp_path):
    """Its user polls as that component, and is given what was not archived yet."""
    fill(log, 30)

    def poll() -> str:
        call = {
            "f": "futoin.evt.poll:1.0:pollEvents",
            "p": {"component": "ARCHIVER", "last_id": None},
            "sec": "spark:x",
        }
        return server.ask("/futoin/orders", json.dumps(call).encode())[1]

    assert json.loads(poll())["e"] == "NotRegistered"
    step(Archiver.open(client, "orders", tmp_path / "orders"), client, upto=20)
    assert [event["id"] for event in json.loads(poll())["r"]] == [str(number) for number in range(21, 31)]


def test_server_gives_disk_space_back_behind_the_archiver_and_nothing_before_it(log, client, tmp_path):
    archiver = Archiver.open(client, "orders", tmp_path / "orders")
    for _ in range(12):
        fill(log, 1000, b"x" * 1000)

    def segments() -> list[Path]:
        return sorted(tmp_path.glob("data/logs/orders.*/log/*.log"))

    before = segments()
    assert before[0].name == "00000000000000000001.log"
    step(archiver, client, upto=9000)
    wait_for(lambda: before[0] not in segments(), seconds=60)
    assert log.info().first_retained == 9001
    assert sum(batch.num_rows for batch in client.read(Ticket("orders"))) == 3000
    step(archiver, client)
    taken = snapshot(tmp_path / "orders")
    assert (taken.archived, taken.events) == (12_000, 12_000)


def test_user_who_may_only_read_cannot_archive(tmp_path):
    for arguments in (
        ("user", "add", "ada", "--data", "data", "--password-stdin", "--grant", "read:orders"),
        ("user", "add", "root", "--data", "data", "--password-stdin", "--grant", "all:*"),
    ):
        assert headwater(*arguments, cwd=tmp_path, stdin="secret-secret\n").returncode == 0
    with RunningServer(*SERVING, cwd=tmp_path) as server:
        url = server.further_url("grpc")
        with BulkClient(url, user="ada", password="secret-secret") as client, pytest.raises(Forbidden):
            Archiver.open(client, "orders", tmp_path / "orders")
        assert not (tmp_path / "orders").exists()
        with BulkClient(url, user="root", password="secret-secret") as client:
            Archiver.open(client, "orders", tmp_path / "orders", owner="root")
