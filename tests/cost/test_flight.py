"""Each action of Arrow Flight, each ticket and each command: what reaches the server of what its bulk process is sent.

The event loop is the server's. The bulk process has threads, and may be busy; but what it spends must not grow faster
than the bytes either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from headwater.flight.wire import ACTIONS, COMMAND_BYTES_MAX
from tests.every import every
from tests.night import pairs
from tests.server.bulk.test_bulk import WITH_FLIGHT, bulk_pid

from .measuring import Cost, ObservedServer
from .shapes import ANY_JSON, ITEM, Shape, json_list

SHAPES: dict[str, Shape] = {
    **ANY_JSON,
    "items of a query": json_list('{"log":"l","query":{"items":[', ITEM, "]}}"),
    "columns": json_list('{"log":"l","columns":[', '"c{}"', "]}"),
    "stages of a commit": json_list('{"log":"l","writer":"w","batch":0,"stages":[', '"{}"', "]}"),
}
Call = Callable[[flight.FlightClient, bytes], object]
CALLS: dict[str, Call] = {
    "do_get": lambda client, text: client.do_get(flight.Ticket(text)).read_all(),
    "get_flight_info": lambda client, text: client.get_flight_info(flight.FlightDescriptor.for_command(text)),
    "get_schema": lambda client, text: client.get_schema(flight.FlightDescriptor.for_command(text)),
    "list_flights": lambda client, text: list(client.list_flights(text)),
    **{
        f"do_action {name}": lambda client, text, name=name: list(client.do_action(flight.Action(name, text)))
        for name in ACTIONS
    },
}


class FlightServer(ObservedServer):
    """One whose bulk process is observed too."""

    @property
    def client(self) -> flight.FlightClient:
        """A client of it."""
        return self._client

    def connect(self) -> None:
        """To be called once."""
        self._client = flight.FlightClient(self.further_url("grpc"))
        self._bulk = Path(f"/proc/{bulk_pid(self)}/stat")
        self._spent_s = 0.0

    def spent(self) -> Cost:
        """Of both processes; steps and holds are the server's."""
        fields = self._bulk.read_text().rpartition(")")[2].split()
        spent_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        before_s, self._spent_s = self._spent_s, spent_s
        cost = super().spent()
        return cost._replace(whole=cost.whole + spent_s - before_s)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlightServer]:
    with FlightServer("--data", "data", "--log", "l", *WITH_FLIGHT, cwd=tmp_path_factory.mktemp("cost")) as running:
        running.connect()
        with running.client:
            yield running


@every("name, shape", pairs(CALLS, list(SHAPES)), ids=str)
def test_whatever_is_asked(server: FlightServer, name: str, shape: str) -> None:
    def ask(size: int) -> None:
        with suppress(flight.FlightError, pa.ArrowException):
            CALLS[name](server.client, SHAPES[shape](size))

    server.check_growth(f"{name}, {shape}", ask, COMMAND_BYTES_MAX)
