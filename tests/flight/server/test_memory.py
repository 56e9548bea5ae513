"""What Flight's streams hold: one budget, small pieces where many read, and room that a write waits for."""

from __future__ import annotations

import threading

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from headwater.core.errors import Closed, Overloaded, TooLarge
from headwater.core.event import Event
from headwater.core.settings import LogSettings
from headwater.core.shared_bytes import FREE_BYTES, KIB, MIB, SharedBytes
from headwater.flight.server import memory as memory_module
from headwater.flight.server.memory import (
    BATCHES,
    PIECE_BYTES_MAX,
    PIECE_BYTES_MIN,
    ReadMemory,
    WriteMemory,
    never_fits,
)
from headwater.flight.wire import Ticket, encode
from headwater.storage.memory import MemoryStore

from ..memory_backend import MemoryBackend, serving


def test_a_budget_that_is_too_small_for_the_own_clients_is_told() -> None:
    warning = never_fits(8 * MIB)
    assert warning is not None and f"batches above {4 * MIB + FREE_BYTES} bytes do not fit into {8 * MIB}" in warning
    assert never_fits(64 * MIB) is None


def test_batches_of_any_number_of_reads_stay_within_the_budget() -> None:
    shared = SharedBytes(64 * MIB)
    reading = ReadMemory(shared)
    parts = []
    for number in range(64):
        parts.append(reading.begin())
        size = reading.piece_bytes()
        assert PIECE_BYTES_MIN <= size <= PIECE_BYTES_MAX
        assert BATCHES * (number + 1) * size <= shared.bytes_max + BATCHES * (number + 1) * FREE_BYTES
    assert reading.piece_bytes() < PIECE_BYTES_MAX
    for part in parts:
        reading.end(part)
    assert shared.bytes == 0
    reading.end(reading.begin())


def test_a_read_that_finds_no_room_is_refused_for_now() -> None:
    reading = ReadMemory(SharedBytes(2 * MIB))
    parts = []
    with pytest.raises(Overloaded):
        for _ in range(10):
            parts.append(reading.begin())
    assert 1 <= len(parts) <= 4
    for part in parts:
        reading.end(part)
    reading.end(reading.begin())


def test_a_write_waits_for_room_and_is_refused_where_none_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "WAIT_S", 0.05)
    shared = SharedBytes(8 * MIB)
    other = shared.part()
    other.claim(4 * MIB, "batch")
    write = WriteMemory(shared, "orders", threading.Event(), 64 * MIB)
    write.read(MIB, "batches[0]")
    with pytest.raises(TooLarge, match=f"at most {4 * MIB + FREE_BYTES} are allowed"):
        write.read(5 * MIB, "batches[1]")
    with pytest.raises(Overloaded):
        write.read(3 * MIB, "batches[1]")
    monkeypatch.setattr(memory_module, "WAIT_S", 60.0)
    freeing = threading.Timer(0.1, other.give, (4 * MIB,))
    freeing.start()
    write.read(3 * MIB, "batches[1]")
    freeing.join()
    write.before()
    assert shared.bytes == 3 * MIB - FREE_BYTES, "the next batch is taken to be as large"
    write.done()
    assert shared.bytes == 0


def test_a_write_that_waits_ends_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, stopping = SharedBytes(MIB), threading.Event()
    stopping.set()
    shared.part().hold(MIB)
    with pytest.raises(Closed):
        WriteMemory(shared, "orders", stopping, MIB).read(300 * KIB, "batches[0]")


def test_readers_beyond_the_budget_are_told_to_come_again_and_batches_are_small() -> None:
    store = MemoryStore()
    log = store.create("orders", LogSettings(event_bytes_max=MIB))
    for _ in range(16):
        log.append([Event(type="E", data=bytes(64 * KIB)) for _ in range(16)])
    shared = SharedBytes(3 * MIB)
    with serving(MemoryBackend(store), memory=shared) as server:
        address = f"grpc://127.0.0.1:{server.port}"
        held: list[tuple[flight.FlightClient, flight.FlightStreamReader]] = []
        with pytest.raises(flight.FlightUnavailableError, match="overloaded"):
            for _ in range(20):
                client = flight.FlightClient(address)
                reader = client.do_get(flight.Ticket(encode(Ticket("orders"))))
                reader.read_chunk()
                held.append((client, reader))
        assert 2 <= len(held) <= 6
        assert shared.bytes <= 3 * MIB
        for client, reader in held:
            reader.cancel()
            client.close()


def test_a_batch_that_never_fits_is_too_large() -> None:
    store = MemoryStore()
    store.create("orders", LogSettings(event_bytes_max=4 * MIB))
    schema = pa.schema([("type", pa.string()), ("data", pa.binary())])
    batch = pa.RecordBatch.from_arrays([pa.array(["E"]), pa.array([bytes(3 * MIB)], pa.binary())], schema=schema)
    shared = SharedBytes(4 * MIB)
    with serving(MemoryBackend(store), memory=shared) as server:
        client = flight.FlightClient(f"grpc://127.0.0.1:{server.port}")
        descriptor = flight.FlightDescriptor.for_command(b'{"append":{"log":"orders"}}')
        with pytest.raises(flight.FlightError, match=f"too_large: .*at most {2 * MIB + FREE_BYTES} are allowed"):
            writer, _ = client.do_put(descriptor, schema)
            writer.write_batch(batch)
            writer.close()
        assert store.open("orders").head() == 0
        assert shared.bytes == 0
        client.close()
