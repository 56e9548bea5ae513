"""A memory store with the log `orders`, a server for it, and clients: ours, and Flight's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from headwater.core import Event, LocalLog
from headwater.flight.client import BulkClient
from headwater.flight.server.server import BulkServer
from headwater.storage.memory import MemoryStore

from .memory_backend import MemoryBackend, serving


class Raw:
    """Flight's own client, with JSON in and out."""

    def __init__(self, url: str, **headers: str) -> None:
        self.client = flight.FlightClient(url)
        self.options = flight.FlightCallOptions(
            headers=[(name.encode(), value.encode()) for name, value in headers.items()], timeout=30
        )

    def act(self, name: str, body: Any = None) -> Any:
        sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        [result] = self.client.do_action(flight.Action(name, sent), self.options)
        return json.loads(result.body.to_pybytes())

    def get(self, **ticket: Any) -> pa.Table:
        return self.client.do_get(flight.Ticket(json.dumps(ticket)), self.options).read_all()

    def plan(self, **command: Any) -> flight.FlightInfo:
        return self.client.get_flight_info(flight.FlightDescriptor.for_command(json.dumps(command)), self.options)

    def put(self, command: dict[str, Any], *batches: pa.RecordBatch) -> list[Any]:
        """All answers; each batch is sent when the one before was answered."""
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command))
        writer, reader = self.client.do_put(descriptor, batches[0].schema, self.options)
        answers = []
        with writer:
            for batch in batches:
                writer.write_batch(batch)
            writer.done_writing()
            while (metadata := reader.read()) is not None:
                answers.append(json.loads(metadata.to_pybytes()))
        return answers

    def close(self) -> None:
        self.client.close()


def refusal(call: Any) -> tuple[type[Exception], dict[str, Any]]:
    """The Flight error that a call ends with, and what its `extra_info` says."""
    with pytest.raises(flight.FlightError) as caught:
        call()
    return caught.type, json.loads(caught.value.extra_info)


def batch(*types: str, **columns: Any) -> pa.RecordBatch:
    data = pa.array([type.encode() for type in types], pa.binary())
    return pa.record_batch({"type": pa.array(types, pa.string()), "data": data, **columns})


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def log(store: MemoryStore) -> LocalLog:
    """The log `orders`, of 100 events `E1` ... `E100` with three tags in turn."""
    log = store.create("orders")
    log.append([Event(f"E{number}", b"x" * number, (f"shop:{number % 3}",)) for number in range(1, 101)])
    return log


@pytest.fixture
def backend(store: MemoryStore, log: LocalLog) -> MemoryBackend:
    return MemoryBackend(store)


@pytest.fixture
def server(backend: MemoryBackend) -> Iterator[BulkServer]:
    with serving(backend) as server:
        yield server


@pytest.fixture
def url(server: BulkServer) -> str:
    return f"grpc://127.0.0.1:{server.port}"


@pytest.fixture
def client(url: str) -> Iterator[BulkClient]:
    with BulkClient(url, retries=0) as client:
        yield client


@pytest.fixture
def raw(url: str) -> Iterator[Raw]:
    raw = Raw(url)
    yield raw
    raw.close()
