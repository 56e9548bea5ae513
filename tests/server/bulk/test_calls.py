"""What the server answers its bulk process: slow calls hold up none of the quick ones, and nothing ends the pair."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headwater.core.access import ANYBODY, OpenGuard
from headwater.core.errors import Closed, EventLogError, InvalidInput, StorageCorrupted, StorageUnavailable, TooLarge
from headwater.core.event import Event
from headwater.core.query import ALL
from headwater.core.readers import Readers, Waiting
from headwater.flight.server.backend import Span
from headwater.flight.wire import AppendCommand, CommitBody, LogBody, Nothing, SequenceNumberAtBody, Ticket, encode
from headwater.formats.jsontext import MalformedJson
from headwater.server.bulk import backend as backend_module
from headwater.server.bulk import streams as streams_module
from headwater.server.bulk.backend import BulkBackend
from headwater.server.bulk.calls import BulkCalls
from headwater.server.bulk.link import REQUEST_BYTES_MAX, Answering, Link
from headwater.server.bulk.streams import About, Sendings
from headwater.server.bulk.supervisor import BulkSettings, BulkSupervisor, Reservation
from headwater.storage import Engine
from headwater.storage.staging.batches import Staging

from ...storage.disks import HeldDisk

ROW = pa.record_batch({"type": pa.array(["A"]), "data": pa.array([b"x"])})


@pytest.fixture
def disk() -> HeldDisk:
    return HeldDisk()


@pytest.fixture
def engine(tmp_path: Path, disk: HeldDisk) -> Iterator[Engine]:
    with Engine(tmp_path / "data", disk=disk, maintains=False) as engine:
        engine.create("orders")
        engine.create("others")
        yield engine
        disk.may_sync.set()


@pytest.fixture
def served(engine: Engine) -> Iterator[tuple[Engine, BulkBackend]]:
    """The backend of a bulk process, and the server's side of its link on a loop of its own."""
    ours, theirs = socket.socketpair()
    calls = BulkCalls(engine, OpenGuard())
    ours.setblocking(False)
    thread = threading.Thread(target=lambda: asyncio.run(Answering(calls.table()).run(ours)))
    thread.start()
    link = Link(theirs, ended=lambda: None, asked=lambda what, arguments: None)
    yield engine, BulkBackend(link, lends=True, staged_bytes_max=2**30, disk_reserve_bytes=0)
    theirs.shutdown(socket.SHUT_RDWR)
    thread.join()
    theirs.close()
    calls.close()


def mapped_files(below: Path) -> set[str]:
    """The logs of which this process has files mapped."""
    gc.collect()
    found = [line.split("/logs/")[1].partition(".")[0] for line in Path("/proc/self/maps").read_text().splitlines()
             if f"{below}/data/logs/" in line and "/log/" in line]  # fmt: skip
    return set(found)


def in_file(batch: pa.RecordBatch, path: Path) -> str:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch)
    return str(path)


def test_writes_that_do_not_get_on_hold_up_nothing_else(engine: Engine, disk: HeldDisk, tmp_path: Path) -> None:
    log = engine.open("orders")
    writer = Staging(log.directory).stage("w", 1, 0, 0, ROW.schema)
    writer.write(ROW)
    stages = [writer.close().stage]
    path = in_file(ROW, tmp_path / "batch")

    command, commit = encode(AppendCommand("orders")), encode(CommitBody("orders", "w", 1, stages))

    async def scenario() -> list[bool]:
        calls = BulkCalls(engine, OpenGuard())

        async def answer(name: str, body: object) -> Any:
            return msgspec.json.decode(await calls.act("", name, encode(body)))

        disk.may_sync.clear()
        appends = [asyncio.create_task(calls.append(path, command)) for _ in range(40)]
        commits = [asyncio.create_task(calls.act("", "commit", commit)) for _ in range(40)]
        async with asyncio.timeout(30):
            assert (await calls.place("others")).extent.head == 0
            assert (await answer("info", LogBody("others")))["events"] == 0
            assert await answer("logs", Nothing()) == {"logs": ["orders", "others"]}
            assert await answer("position_at", SequenceNumberAtBody("others", 0)) == {"sequence_number": 1}
            assert await asyncio.to_thread(lambda: 1) == 1, "the threads of everybody else are free"
        disk.may_sync.set()
        assert len(await asyncio.gather(*appends)) == 40
        committed = await asyncio.gather(*commits)
        calls.close()
        return [msgspec.json.decode(each)["was_applied"] for each in committed]

    assert sorted(asyncio.run(scenario())) == [False] + [True] * 39
    assert log.head() == 41


def test_a_batch_that_went_with_the_process_that_held_it_is_no_fault_of_the_server(
    engine: Engine, tmp_path: Path
) -> None:
    """It was killed while it waited for the answer; an error of the log is told to who asks, and to nobody else."""
    calls = BulkCalls(engine, OpenGuard())
    with pytest.raises(StorageUnavailable, match="nothing was appended"):
        asyncio.run(calls.append(str(tmp_path / "gone"), encode(AppendCommand("orders"))))
    calls.close()
    assert engine.open("orders").head() == 0


def test_what_was_deleted_or_trimmed_is_let_go(tmp_path: Path, served: tuple[Engine, BulkBackend]) -> None:
    engine, backend = served
    for name in ("orders", "others"):
        engine.open(name).append([Event("A", b"x")])
        assert backend.count(name, Span(0, 1, 0)) == 1
        assert [batch.num_rows for batch in backend.scan(name, Span(0, 1, None), ALL, ["type"])] == [1]
    engine.delete("orders")
    assert mapped_files(tmp_path) == {"orders", "others"}
    backend.let_go()
    assert mapped_files(tmp_path) == {"others"}


def test_logs_that_are_not_kept_mapped_leave_no_descriptors(
    served: tuple[Engine, BulkBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, backend = served
    monkeypatch.setattr(backend_module, "MAPPED_MAX", 1)
    for name in ("orders", "others"):
        engine.open(name).append([Event("A", b"x")])
    open_before = 0
    for turn in range(20):
        for name in ("orders", "others"):
            assert sum(batch.num_rows for batch in backend.scan(name, Span(0, 1, None), ALL, ["type"])) == 1
        if not turn:
            open_before = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) <= open_before


@pytest.mark.parametrize(
    "error",
    [StorageCorrupted(Path("/orders"), "damaged", "restore it"), StorageUnavailable("damaged", reason="not now")],  # type: ignore[arg-type]
)
def test_errors_travel_as_what_they_are_whatever_they_carry(
    error: EventLogError, served: tuple[Engine, BulkBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, backend = served

    def fails() -> None:
        raise error

    monkeypatch.setattr(engine.open("orders"), "info", fails)
    with pytest.raises(type(error), match="damaged") as caught:
        backend.act(ANYBODY, "info", encode(LogBody("orders")))
    assert caught.value.__dict__.keys() == error.__dict__.keys()


def test_what_is_wrong_with_a_body_is_said_by_the_server_as_it_would_be_here(
    served: tuple[Engine, BulkBackend],
) -> None:
    _, backend = served
    with pytest.raises(MalformedJson, match="info: malformed JSON in line 1, column 2"):
        backend.act(ANYBODY, "info", b"{")
    with pytest.raises(InvalidInput) as caught:
        backend.act(ANYBODY, "trim", b'{"log":"orders","below":-1}')
    assert (caught.value.where, caught.value.problem) == ("trim.below", "expected `int` >= 0")


@pytest.mark.parametrize(
    ("name", "more"),
    [("writer", ""), ("forget_writer", ""), ("commit", ',"batch":1,"stages":[]'), ("discard", ',"batch":1')],
)
def test_no_log_is_opened_for_a_writer_whose_name_cannot_be_one(
    served: tuple[Engine, BulkBackend], name: str, more: str
) -> None:
    _, backend = served
    with pytest.raises(InvalidInput) as caught:
        backend.act(ANYBODY, name, (r'{"log":"nothing","writer":"w\n"' + more + "}").encode())
    assert caught.value.where == "writer"


def test_a_request_that_is_too_large_is_refused_before_it_is_sent() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = Link(theirs, ended=lambda: None, asked=lambda what, arguments: None)
        with pytest.raises(TooLarge, match="bytes"):
            link.call("append", b"x" * (REQUEST_BYTES_MAX + 1), type=type(None))
        ours.shutdown(socket.SHUT_RDWR)


def test_an_answer_that_makes_no_sense_ends_the_link_instead_of_letting_callers_wait_for_ever() -> None:
    ours, theirs = socket.socketpair()
    ended = threading.Event()
    with ours, theirs:
        link = Link(theirs, ended=ended.set, asked=lambda what, arguments: None)

        def answer() -> None:
            ours.recv(1024)
            ours.sendall(struct.pack("<IQB", 1, 1, 2) + b"\xc1")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(Closed):
            link.call("logs", type=list[str])
        thread.join()
        assert ended.wait(30)


def test_a_process_that_cannot_be_started_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    reservation = Reservation("127.0.0.1", 0, "--flight-port")
    settings = BulkSettings(reservation.host, reservation.port, "", "", 1, True, 2**20, 0, 1000, "info", 2**28)
    start = asyncio.create_subprocess_exec
    refusals = [OSError(errno.EAGAIN, "resource temporarily unavailable") for _ in range(2)]
    started: list[asyncio.subprocess.Process] = []

    async def sometimes(*arguments: Any, **named: Any) -> asyncio.subprocess.Process:
        if started and refusals:
            raise refusals.pop()
        started.append(await start(*arguments, **named))
        return started[-1]

    async def scenario() -> None:
        supervisor = BulkSupervisor(settings, reservation, {})
        await supervisor.start()
        started[0].kill()
        async with asyncio.timeout(60):
            while len(started) < 2:
                await asyncio.sleep(0.01)
        await supervisor.stop()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", sometimes)
    asyncio.run(scenario())
    reservation.close()
    assert not refusals


class Heard:
    """What the server was told of streams."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def tell(self, *call: Any) -> None:
        self.calls.append(call)


def test_a_short_stream_is_told_of_once_and_a_long_one_as_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard()
    streams = Sendings(heard)  # type: ignore[arg-type]
    short = streams.begin("alice", "10.0.0.1", Ticket("orders", query="type=A"))
    short.sent(5)
    short.end()
    short.forget()
    short.end()
    streams.begin("alice", "10.0.0.1", Ticket("orders")).end()  # which had none
    assert heard.calls == [("sent", 1, 5, True, None)]
    monkeypatch.setattr(streams_module, "TELL_S", 0.0)
    long = streams.begin("alice", "10.0.0.1", Ticket("orders", partition=1, query="type=A"))
    streams.look()
    about = About("alice", "10.0.0.1", "orders", "type=A", 1)
    assert heard.calls[1:] == [("sent", 3, 0, False, about)]
    long.sent(7)
    streams.end(3, "closed by root")
    streams.end(99, "closed by root")
    assert long.end_reason == "closed by root" and short.end_reason is None
    long.forget()
    assert heard.calls[2:] == [("sent", 3, 7, False, None)]
    streams.look()
    streams.look()
    assert heard.calls[3:] == [("sent", 3, 0, True, None)]


def test_streams_of_the_bulk_process_are_readers_until_they_end(engine: Engine) -> None:
    readers, asked = Readers(), list[tuple[Any, ...]]()
    about = ["alice", "10.0.0.1", "orders", "type=A", 0]

    async def scenario() -> None:
        calls = BulkCalls(engine, OpenGuard(), readers)
        calls.ask = lambda *arguments: asked.append(arguments)
        await calls.sent(1, 100, True, None)
        assert calls.traffic.events_out == 100 and not readers.by_number
        await asyncio.gather(
            calls.sent(2, 10, False, about), calls.sent(2, 5, False, None), calls.sent(3, 1, False, about)
        )
        first, second = readers.by_number.values()
        assert (first.events, first.user, first.peer, first.log.name) == (15, "alice", ("10.0.0.1", None), "orders")
        assert (first.position, first.waits_for, first.partition) == (None, Waiting.READING, 0)
        second.end("closed by root")
        assert asked == [("end", 3, "closed by root")]
        await asyncio.gather(calls.sent(4, 1, False, [*about[:2], "gone", None, None]), calls.sent(2, 1, True, None))
        assert list(readers.by_number.values()) == [second]
        calls.forget_streams()
        assert not readers.by_number and calls.traffic.events_out == 118
        calls.close()

    asyncio.run(scenario())
