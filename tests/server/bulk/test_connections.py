"""Peers of Flight who send more than is taken from them lose their connection; the process and other peers go on."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.flight as flight
import pytest

from headwater.core.shared_bytes import FREE_BYTES, KIB, MIB
from headwater.flight.client import BulkClient
from headwater.flight.server.authentication import address_of
from headwater.flight.wire import LogBody, encode
from headwater.server.bulk.connections import Connection, Connections, _beyond, _place_of
from headwater.server.bulk.sockets import OwnSocket, sockets
from tests.load.hostile import peers
from tests.load.place import Place
from tests.waiting import eventually

from ..running import RunningServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much a peer has sent")
WITH_FLIGHT = ("--flight-enabled", "true", "--flight-port", "0", "--memory-peers", "64MiB")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer("--data", "data", "--log", "orders", *WITH_FLIGHT, cwd=tmp_path) as running:
        yield running


def told(server: RunningServer, metric: str) -> float:
    found = re.search(rf"^headwater_{metric}_total (\S+)$", server.ask("/metrics")[1], re.MULTILINE)
    assert found is not None
    return float(found[1])


def look(client: flight.FlightClient, body_bytes: int) -> None:
    body = encode(LogBody("orders"))
    list(client.do_action(flight.Action("head", body + b" " * (body_bytes - len(body)))))


def test_strangers_lose_their_connections_and_others_keep_theirs(server: RunningServer) -> None:
    url = server.further_url("grpc")
    with BulkClient(url, retries=0) as good:
        assert good.head("orders").head == 0
        place = Place("", "", url, "mallory", "")
        with peers.Crowd([peers.flight(place, is_known=False) for _ in range(8)]) as crowd:
            crowd.push(60)
            eventually(lambda: told(server, "bulk_ended") >= 1)
        assert good.head("orders").head == 0
    assert told(server, "bulk_deaths") == 0
    assert "Arrow Flight connections were closed" in server.errors


def test_a_first_call_may_be_as_large_as_any(server: RunningServer) -> None:
    with flight.FlightClient(server.further_url("grpc")) as first:
        look(first, 1000 * KIB)
    assert told(server, "bulk_ended") == 0


def test_what_the_server_took_of_one_who_has_logged_in_does_not_count_and_what_comes_then_does() -> None:
    found = Connections(MIB, lambda count: None, address_of)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
        listening.accept()[0],
    ):
        found._port = listening.getsockname()[1]
        found._find()
        [its] = found._known.values()
        found._strangers_bytes_max, found._bytes_max = FREE_BYTES + 1000, 2000

        def send(size: int) -> None:
            before = its.received
            client.sendall(bytes(size))
            eventually(lambda: found._look() or its.received == before + size)

        send(1000)
        assert not found._bound() and not its.is_known
        found.took("ipv4:{}:{}".format(*client.getsockname()))
        assert its.is_known and its.held == 0
        send(2000)
        assert not found._bound(), "the bound of strangers is another"
        send(1)
        assert found._bound() == [its]
        assert client.recv(1) == b"" and not found._known


def test_those_who_hold_most_are_ended_until_a_quarter_of_the_bound_is_held() -> None:
    held = [5, 40, 1, 30, 20]
    those = [Connection(None, ("127.0.0.1", port)) for port in range(5)]  # type: ignore[arg-type]
    for each, size in zip(those, held, strict=True):
        each.received = size
    assert _beyond(those, sum(held), 0) == []
    assert [each.held for each in _beyond(those, sum(held) - 1, 0)] == [40, 30, 20]
    assert len(_beyond(those, 4 * FREE_BYTES, FREE_BYTES)) == 5, "each counts for its thread, too"


def test_a_peer_is_found_by_what_grpc_calls_it() -> None:
    assert _place_of("ipv4:10.0.0.1:5000") == ("10.0.0.1", 5000)
    assert _place_of("ipv6:%5B::1%5D:5000") == ("::1", 5000)
    assert _place_of("ipv6:%5Bfe80::1%25eth0%5D:5000") == ("fe80::1", 5000)
    assert _place_of("ipv6:%5B::ffff:10.0.0.1%5D:5000") == ("10.0.0.1", 5000)
    assert _place_of("unix:") == ("unix:", 0)


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_an_own_descriptor_stays_the_same_socket_and_tells_what_came(
    family: socket.AddressFamily, address: str
) -> None:
    with (
        socket.create_server((address, 0), family=family) as listening,
        socket.create_connection(listening.getsockname()[:2]) as client,
    ):
        accepted, _ = listening.accept()
        [cookie] = [cookie for cookie, fd in sockets() if fd == accepted.fileno()]
        own = OwnSocket(accepted.fileno())
        with accepted:
            assert own.cookie == cookie and not own.is_listening
            assert own.peer == client.getsockname()[:2] and own.name == listening.getsockname()[:2]
            client.sendall(bytes(1000))
            eventually(lambda: own.received == 1000)
        with socket.socket() as other:  # it may get the number that was closed
            again = OwnSocket(other.fileno())
            assert again.cookie != cookie
            again.close()
        assert own.cookie == cookie and own.received == 1000
        own.end()
        assert client.recv(1) == b"" and own.received is None
        own.close()
    pair = socket.socketpair()
    own = OwnSocket(pair[0].fileno())
    assert own.name is None and own.received is None
    own.close()
    for each in pair:
        each.close()
