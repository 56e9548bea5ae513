"""A primary whose lease has ended answers no call of any protocol that reads, whatever connections are open.

The server of these tests is the primary of a home, and believes that its lease has ended while a file is there.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psycopg
import pytest

from headwater.homes.postgres.schema import make_tables
from tests.homes.postgres_server import postgres
from tests.waiting import eventually

from . import calls_amqp, calls_cne, calls_console, calls_flight, calls_futoin, calls_http, calls_management, table
from .world import ADMIN, LOG, TIMEOUT_S, Target, Verdict, World

pytestmark = pytest.mark.timeout(300)

_LAPSING = """
import os
from headwater.homes.driver import Driver
from headwater.cli.main import main
may_act = Driver.may_act
Driver.may_act = lambda self: may_act(self) and not os.path.exists({flag!r})
Driver._watch_time = lambda self: self._ended.wait()
main()
"""
HARMLESS = {
    "GET /health", "GET /health/live", "GET /health/ready",
    "attach a producer to the anonymous relay", "attach a receiver to $events", "attach a pair to $management",
    "attach a receiver to a reply node", "attach a sender to a temporary queue", "handshake", "list_actions",
    "do_action lend",
}  # fmt: skip
"""Calls that tell nothing of the logs. To lend is to tell where a loan is to be asked for."""


class Call(NamedTuple):
    """One call of one protocol."""

    name: str
    prepare: Callable[[World], Target]
    make: Callable[[World, Target], Verdict]


def _of(protocol: table.Protocol, calls: object, *more: object) -> Iterator[Call]:
    for row in protocol.rows:
        yield Call(
            row.call,
            lambda world, call=row.call: calls.prepared(world, call),  # type: ignore[attr-defined, misc]
            lambda world, target, call=row.call: calls.make(world, call, *more, ADMIN, target),  # type: ignore
        )


def _of_futoin() -> Iterator[Call]:
    for function in calls_futoin.FUNCTIONS:
        for channel in calls_futoin.channels_of(function):
            yield Call(
                f"{function} {channel}",
                lambda world: {},
                lambda world, _, function=function, channel=channel: calls_futoin.make(  # type: ignore[misc]
                    world, function, channel, ADMIN, calls_futoin.parameters(world, function)
                ),
            )


def _of_console() -> Iterator[Call]:
    for row in table.CONSOLE.rows:
        yield Call(row.call, lambda world: {}, lambda world, _, call=row.call: calls_console.make(world, call, ADMIN))  # type: ignore[misc]


CALLS = [
    *_of(table.HTTP, calls_http), *_of(table.CNE, calls_cne, calls_cne.VERSIONS[-1]), *_of_futoin(),
    *(call for call in _of(table.AMQP, calls_amqp) if call.name != calls_amqp.LOGIN),
    *_of(table.MANAGEMENT, calls_management), *_of_console(), *_of(table.FLIGHT, calls_flight),
]  # fmt: skip


class Lapsing(NamedTuple):
    """The server, and the file."""

    world: World
    flag: Path

    @contextmanager
    def lapsed(self) -> Iterator[None]:
        """Its lease has ended for so long."""
        self.flag.touch()
        try:
            yield
        finally:
            self.flag.unlink()


@pytest.fixture(scope="module")
def lapsing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lapsing]:
    folder = tmp_path_factory.mktemp("lapsed")
    flag = folder / "lapsed"
    with postgres() as database:
        with psycopg.connect(database.url, autocommit=True) as connection:
            make_tables(connection)
        program = [sys.executable, "-c", _LAPSING.format(flag=str(flag))]
        with World(folder, "--home", database.url, program=program) as world:
            yield Lapsing(world, flag)


@pytest.mark.parametrize("call", [call for call in CALLS if call.name not in HARMLESS], ids=lambda call: call.name)
def test_a_primary_whose_lease_has_ended_answers_no_call(lapsing: Lapsing, call: Call) -> None:
    world, verdict = lapsing.world, None
    target = call.prepare(world)
    with lapsing.lapsed():
        try:
            verdict = call.make(world, target)
        except TimeoutError:
            raise
        except Exception as refusal:
            assert "internal error" not in str(refusal)
    assert verdict is not Verdict.DONE
    assert call.make(world, call.prepare(world)) is Verdict.DONE, "it is answered while there is a lease"


def test_an_answer_is_withheld_that_was_asked_for_before_the_lease_ended(lapsing: Lapsing) -> None:
    its = urlsplit(lapsing.world.url)
    body = b'{"query": {"all": true}}'
    fields = "".join(f"{name}: {value}\r\n" for name, value in lapsing.world.authorization(ADMIN).items())
    fields += f"Host: {its.netloc}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    head = f"POST /logs/{LOG}/read HTTP/1.1\r\n{fields}\r\n"
    with socket.create_connection((its.hostname or "", its.port or 0), TIMEOUT_S) as peer:
        peer.sendall(head.encode())
        is_running = b"headwater_http_requests_running 2.0"  # that one, and the one for metrics
        eventually(lambda: is_running in lapsing.world.ask(ADMIN, "GET", "/metrics").body)
        with lapsing.lapsed():
            peer.sendall(body)
            assert peer.recv(65536).split()[1] == b"503"
