"""A Flight stream proves its end by gRPC's status: one that is cut raises, wherever that is, and never looks whole."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from headwater.core import Event
from headwater.flight.client import BulkClient
from headwater.flight.wire import Ticket
from headwater.storage.memory import MemoryStore
from tests.client.served_memory import CuttingProxy

from .memory_backend import MemoryBackend, serving

EVENTS, DATA_BYTES = 3000, 300


@pytest.fixture
def port() -> Iterator[int]:
    store = MemoryStore()
    log = store.create("orders")
    for _ in range(3):
        log.append([Event("A", b"x" * DATA_BYTES) for _ in range(EVENTS // 3)])
    with serving(MemoryBackend(store)) as server:
        yield server.port


@pytest.mark.parametrize("cut", [1_000, 200_000, 500_000, 900_000])
def test_a_stream_that_is_cut_raises_and_our_client_goes_on(port: int, cut: int) -> None:
    proxy = CuttingProxy(port, [cut])
    url = f"grpc://127.0.0.1:{proxy.url.rpartition(':')[2]}"
    try:
        with flight.FlightClient(url) as plain, pytest.raises((flight.FlightError, pa.ArrowException, OSError)):
            plain.do_get(flight.Ticket(b'{"log": "orders"}'), flight.FlightCallOptions(timeout=30)).read_all()
        proxy.cuts.append(cut)
        with BulkClient(url) as client:
            assert sum(batch.num_rows for batch in client.read(Ticket("orders"))) == EVENTS
    finally:
        proxy.close()
