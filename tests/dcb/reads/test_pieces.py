"""Answers come in pieces of the size that memory allows; large events in slices, with the same content as whole."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import weakref
from collections import Counter
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.core import ALL, Event, LogSettings, OpenGuard
from headwater.core.log import PAGE_BYTES
from headwater.core.loop.memory import PIECE_BYTES_MAX, MemoryAccount, Share
from headwater.core.loop.scheduler import BUDGET_S, FairScheduler
from headwater.core.loop.traffic import Traffic
from headwater.core.reading import read_pages
from headwater.dcb import Application
from headwater.dcb.events import ndjson
from headwater.dcb.reads.pieces import AnswerPieces
from headwater.formats.packed import PageParser
from headwater.http.asgi import DONE, MEMORY
from headwater.storage import Engine

from ..conftest import Client, Connection

MIB = 2**20
TEXT = ('é"\\\x01' * 200_000).encode()
SMALL = [Event("S", b"s%d" % each, ("n:1",)) for each in range(20)]
LARGE = {
    "text": Event("T", TEXT, ('x:"data":""',), "a"),
    "bytes": Event("T", b"\xff\x00" * 300_000, (), "b"),
    "above 4 MiB": Event("T", b"x" * (4 * MIB + 1), (), "c"),
}
PIECES_MAX = 2 * PIECE_BYTES_MAX


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Client]:
    """A client of logs on disk: `courses` has small events around large ones."""
    with Engine(tmp_path / "data", maintains=False, reserve_bytes=0) as engine:
        engine.create("courses", LogSettings(event_bytes_max=8 * MIB)).append([*SMALL, *LARGE.values(), *SMALL])
        client = Client(Application(engine, OpenGuard()))
        yield client
        client.close()


def read(client: Client, accept: str, **body: Any) -> list[bytes]:
    """The pieces of an answer."""

    async def scenario() -> list[bytes]:
        asked = client.connect(
            "POST", "/logs/courses/read", {"query": "all", **body}, headers={"Accept": accept, "Host": "x"}
        )
        await asked.end()
        assert asked.status == 200, asked.body
        return [message.get("body", b"") for message in asked.messages[1:]]

    pieces: list[bytes] = client.run(scenario())
    return pieces


def data_of(event: dict[str, Any]) -> bytes:
    return base64.b64decode(event["data_base64"]) if "data_base64" in event else event["data"].encode()


EXPECTED = [event.data for event in (*SMALL, *LARGE.values(), *SMALL)]
TAGGED = {"query": {"items": [{"types": ["S", "T"]}]}}


@pytest.mark.parametrize("query", [{}, TAGGED, {"backwards": True}, {**TAGGED, "backwards": True}], ids=str)
@pytest.mark.parametrize("form", ["application/x-ndjson", "application/json"])
def test_json_has_large_data_in_slices(stored: Client, form: str, query: dict[str, Any]) -> None:
    pieces = read(stored, form, **query)
    assert max(map(len, pieces)) <= PIECES_MAX
    body = b"".join(pieces)
    lines = json.loads(body) if form == "application/json" else [json.loads(line) for line in body.splitlines()]
    found = [data_of(line["event"]) for line in lines]
    assert (found[::-1] if "backwards" in query else found) == EXPECTED
    above = next(line["event"] for line in lines if line["event"]["id"] == "c")
    assert "data" not in above and above["tags"] == []
    assert next(line["event"] for line in lines if line["event"]["id"] == "a")["tags"] == ['x:"data":""']


@pytest.mark.parametrize("query", [{}, TAGGED], ids=str)
def test_messagepack_has_large_data_in_slices(stored: Client, query: dict[str, Any]) -> None:
    pieces = read(stored, "application/vnd.msgpack;end=page", **query)
    assert max(map(len, pieces)) <= PIECES_MAX
    parser = PageParser(0)
    events = [event for piece in pieces for event in parser.receive_data(piece)]
    assert parser.has_ended and [event.data for event in events] == EXPECTED
    assert [event.tags for event in events if event.id == "a"] == [('x:"data":""',)]


def test_arrow_has_large_data_in_slices(stored: Client) -> None:
    pieces = read(stored, "application/vnd.apache.arrow.stream")
    assert max(map(len, pieces)) <= PIECES_MAX
    table = pa.ipc.open_stream(b"".join(pieces)).read_all()
    assert table["data"].to_pylist() == EXPECTED and len(table.schema) == 12


def test_cloudevents_have_large_data_in_slices(stored: Client) -> None:
    pieces = read(stored, "application/cloudevents-batch+json")
    assert max(map(len, pieces)) <= PIECES_MAX
    found = json.loads(b"".join(pieces))
    assert [base64.b64decode(each["data_base64"]) for each in found] == EXPECTED


@pytest.mark.parametrize("name", LARGE)
def test_one_large_event_comes_in_slices(stored: Client, name: str) -> None:
    number = len(SMALL) + list(LARGE).index(name) + 1
    answer = stored.get(f"/logs/courses/events/{number}")
    assert data_of(answer.json["event"]) == LARGE[name].data
    answer = stored.get(f"/logs/courses/events/{number}", parameters={"form": "data"})
    assert answer.body == LARGE[name].data and answer.headers["content-length"] == str(len(LARGE[name].data))
    answer = stored.get(f"/logs/courses/events/{number}", parameters={"data_bytes_max": 100_000})
    shown = answer.json["event"]
    assert shown["data_bytes"] == len(LARGE[name].data)
    assert LARGE[name].data.startswith(data_of(shown)) and len(data_of(shown)) in (99_999, 100_000)


def test_a_subscription_has_large_data_in_slices(stored: Client) -> None:
    async def scenario() -> bytes:
        asked = stored.connect("GET", "/logs/courses/subscribe", parameters={"query": "all", "after": 0})
        await asked.until(
            lambda one: b'"sequence_number":%d' % len(EXPECTED) in (one.messages or [{}])[-1].get("body", b"")
        )
        asked.leave()
        await asked.end()
        assert max(len(message.get("body", b"")) for message in asked.messages) <= PIECES_MAX
        return asked.body

    blocks = stored.run(scenario()).split(b"\n\n")
    shown = [json.loads(block.partition(b"\ndata: ")[2]) for block in blocks if b"\ndata: " in block]
    assert [data_of(each["event"]) for each in shown] == EXPECTED


@pytest.mark.parametrize("query", [{}, TAGGED], ids=str)
def test_nothing_is_read_before_the_client_takes_what_was_made(stored: Client, query: dict[str, Any]) -> None:
    account = MemoryAccount(MIB)

    async def scenario() -> None:
        share = Share(account)
        asked = stored.connect("POST", "/logs/courses/read", {"query": "all", **query}, takes=3)
        asked.scope[MEMORY] = share
        await asked.until(lambda one: len(one.messages) == 3)
        assert account.readers == 1
        asked.leave()
        asked.take(1000)
        asked.task.cancel()
        await asyncio.wait((asked.task,))
        assert account.readers == 0

    stored.run(scenario())


def test_a_page_that_is_bounded_has_no_more_than_its_bound(tmp_path: Path) -> None:
    with Engine(tmp_path / "data", maintains=False, reserve_bytes=0) as engine:
        log = engine.create("courses")
        log.append([Event("T", b"x" * size, ("tag:1",)) for size in (10, 5000, 30_000, 20, 9000, 9000)])
        for backwards in (False, True):
            cursor, sizes = (7 if backwards else 0), list[int]()
            while len(sizes) < 6:
                page = log.read_page(ALL, cursor, backwards=backwards, bytes_max=16_384, is_bounded=True)
                assert sum(len(event.data) for event in page.events) < 16_384
                sizes += [len(event.data) for event in page.events]
                if page.large is not None:
                    assert not page.events and page.large.event.data == b""
                    sizes.append(len(page.large.data))
                cursor = page.cursor
            assert sizes == ([9000, 9000, 20, 30_000, 5000, 10] if backwards else [10, 5000, 30_000, 20, 9000, 9000])
        assert len(log.read_page(ALL, 0, bytes_max=PAGE_BYTES).events) == 6


def test_an_answer_that_is_broken_off_in_a_large_event_is_freed_without_a_collection(tmp_path: Path) -> None:
    with Engine(tmp_path / "data", maintains=False, reserve_bytes=0) as engine:
        log = engine.create("courses", LogSettings(event_bytes_max=8 * MIB))
        log.append([LARGE["above 4 MiB"]])
        share = Share(MemoryAccount(64 * MIB))
        pages = read_pages(log, ALL, log.selection(None, 0, False, None, None), page_bytes=lambda: share.piece_bytes)
        rendering = ndjson(has_partitions=False, in_seed_form=False)
        first = next(pages)
        gc.disable()
        try:
            pieces = AnswerPieces(first, pages, rendering, Traffic(), share)
            del first
            assert pieces.next(), "the first slice"
            is_there = weakref.ref(pieces)
            del pieces
            assert is_there() is None
        finally:
            gc.enable()


def test_to_write_a_piece_counts_for_the_turn_of_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty readers whose pieces take long to write: not all are written in one turn of the loop."""
    clock, turn, written = [0.0], [0], Counter[int]()

    def send(connection: Connection, message: dict[str, Any]) -> Awaitable[None]:
        if len(message.get("body", b"")) >= MIB // 8:
            clock[0] += 2 * BUDGET_S
            written[turn[0]] += 1
        return DONE

    async def read_all(client: Client) -> None:
        loop = asyncio.get_running_loop()

        def count() -> None:
            turn[0] += 1
            loop.call_soon(count)

        count()
        readers = [client.connect("POST", "/logs/courses/read", {"query": "all"}) for _ in range(20)]
        await asyncio.gather(*(reader.task for reader in readers))

    monkeypatch.setattr(Connection, "_send", send)
    turns = FairScheduler(cpu=lambda: clock[0], wall=lambda: clock[0])
    with Engine(tmp_path / "data", maintains=False, reserve_bytes=0) as engine:
        engine.create("courses").append([Event("T", b"x" * MIB)] * 3)
        client = Client(Application(engine, OpenGuard(), turns=turns))
        client.run(read_all(client))
        client.close()
    assert written.total() > 20 and max(written.values()) <= 2, written
