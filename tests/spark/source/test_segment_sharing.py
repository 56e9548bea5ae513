"""Slices read from the files of a log of the same machine: what Flight gives, and Flight where that cannot be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from headwater.core.access import Forbidden
from headwater.core.errors import InvalidInput
from headwater.flight.calls import segment_sharing as socket_of_lender
from headwater.flight.client import BulkClient
from headwater.flight.wire import Lender, Ticket
from headwater.spark.source import segment_sharing
from headwater.storage.read.segment_sharing import CAN_LEND
from tests.server.running import RunningServer, headwater

from ..test_real_server import WITH_FLIGHT, batch

pytestmark = pytest.mark.skipif(not CAN_LEND, reason="this system has no files in memory")
COUNT = 20_000


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BulkClient]:
    directory = tmp_path_factory.mktemp("server")
    with (
        RunningServer("--data", "data", *WITH_FLIGHT, cwd=directory) as running,
        BulkClient(running.further_url("grpc")) as client,
    ):
        client.create_log("orders")
        client.append("orders", [batch(first, 2000) for first in range(1, COUNT, 2000)])
        yield client


@pytest.fixture(autouse=True)
def nobody_refused() -> None:
    segment_sharing._refusing.clear()


@pytest.fixture
def ticket(client: BulkClient) -> Ticket:
    [split] = client.plan(Ticket("orders", schema="spark"))
    return split.ticket


@pytest.fixture
def loans(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What was said of each loan that is taken."""
    taken: list[bytes] = []

    def take(lender: Lender) -> tuple[bytes, list[int]]:
        message, descriptors = original(lender)
        taken.append(message)
        return message, descriptors

    original = socket_of_lender.take
    monkeypatch.setattr(socket_of_lender, "take", take)
    return taken


def table(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize("columns", [None, ("data",), ("tags", "data", "log"), ("type",), ("log",)])
def test_the_files_give_what_flight_gives(
    client: BulkClient, ticket: Ticket, loans: list[bytes], columns: tuple[str, ...] | None
) -> None:
    ticket = replace(ticket, columns=columns)

    assert table(segment_sharing.read(client, ticket)) == table(client.read(ticket))
    assert len(loans) == (columns is None or "data" in columns)  # without payloads Flight is quicker


def test_a_part_of_a_log_is_borrowed(client: BulkClient, ticket: Ticket, loans: list[bytes]) -> None:
    ticket = replace(ticket, after=1234, upto=12_345)

    found = table(segment_sharing.read(client, ticket))

    assert found == table(client.read(ticket)) and found.num_rows == 11_111
    assert len(loans) == 1


@pytest.mark.parametrize("asked", [{"query": "tag=order:17"}, {"partition": 0}, {"upto": 100}])
def test_what_an_index_finds_and_what_is_small_comes_over_flight(
    client: BulkClient, ticket: Ticket, loans: list[bytes], asked: dict[str, object]
) -> None:
    ticket = replace(ticket, **asked)

    assert table(segment_sharing.read(client, ticket)) == table(client.read(ticket))
    assert not loans


def test_a_server_elsewhere_is_read_over_flight_and_not_asked_again_soon(
    client: BulkClient, ticket: Ticket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[Lender] = []

    def take(lender: Lender) -> tuple[bytes, list[int]]:
        asked.append(lender)
        raise ConnectionRefusedError("connection refused")

    monkeypatch.setattr(socket_of_lender, "take", take)
    caplog.set_level("INFO", "headwater.spark")

    for _ in range(2):
        assert table(segment_sharing.read(client, ticket)).num_rows == COUNT
    assert len(asked) == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"logs of {client.address.url} are read over Flight: connection refused"
    ]


@pytest.mark.parametrize(
    "told",
    [
        b"{",
        b'{"after":0,"upto":0,"segments":[]}',
        b'{"after":0,"upto":20000,"segments":[]}',
        b'{"after":5,"upto":20000,"segments":[]}',
    ],
)
def test_a_loan_of_something_else_is_not_used_and_its_descriptors_are_closed(
    client: BulkClient, ticket: Ticket, monkeypatch: pytest.MonkeyPatch, told: bytes
) -> None:
    given: list[int] = []

    def take(lender: Lender) -> tuple[bytes, list[int]]:
        given.append(os.memfd_create("places"))
        return told, list(given)

    monkeypatch.setattr(socket_of_lender, "take", take)

    assert table(segment_sharing.read(client, ticket)).num_rows == COUNT
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(given[0])


def test_an_older_server_is_read_over_flight(
    client: BulkClient, ticket: Ticket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lender(self: BulkClient, ticket: Ticket, uid: int) -> Lender:
        raise InvalidInput("got 'lend', expected one of head", "action")

    monkeypatch.setattr(BulkClient, "lender", lender)

    assert table(segment_sharing.read(client, ticket)).num_rows == COUNT


def test_only_who_may_read_a_log_may_borrow_of_it(tmp_path: Path) -> None:
    for user, grant in (("ann", "read:orders"), ("bob", "read:others"), ("root", "all:*")):
        given = ("user", "add", user, "--grant", grant, "--password-stdin", "--data", "data")
        assert headwater(*given, cwd=tmp_path, stdin=f"{user}-secret-word\n").returncode == 0
    with RunningServer("--data", "data", *WITH_FLIGHT, cwd=tmp_path) as running:
        url = running.further_url("grpc")
        with BulkClient(url, user="root", password="root-secret-word") as root:
            root.create_log("orders")
            root.append("orders", batch(1, 10_000))
            [split] = root.plan(Ticket("orders"))
        with BulkClient(url, user="ann", password="ann-secret-word") as ann:
            message, descriptors = socket_of_lender.take(ann.lender(split.ticket, os.getuid()))
            assert message and descriptors
            for descriptor in descriptors:
                os.close(descriptor)
        with BulkClient(url, user="bob", password="bob-secret-word") as bob, pytest.raises(Forbidden):
            bob.lender(split.ticket, os.getuid())
