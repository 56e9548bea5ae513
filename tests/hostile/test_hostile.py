"""A few seconds of each hostile client: nobody else loses an event, or a connection. `make hostile` takes longer."""

from __future__ import annotations

import base64
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.server.running import RunningServer
from tests.server.starting import PROGRAM
from tests.waiting import eventually

from .attacks import ATTACKS
from .readers import READERS
from .street import PASSWORD, Street, configuration, resident_mib, seen_once

SECONDS = 2.0
ROUNDS, STRANGERS = 2, 50
SLACK_MIB = 150
"""More than a server grows by in these rounds, and less than strangers send in one."""
FILES_MORE = 60
"""Files that may be open more than before: those of segments, and of connections of the neighbours."""


@pytest.mark.timeout(900)
def test_a_hostile_client_of_each_protocol_in_turn_costs_no_other_an_event_or_a_connection(tmp_path: Path) -> None:
    with Street(tmp_path) as street:
        for protocol in ATTACKS:
            files = street.open_files()
            done = street.attack(protocol, SECONDS)
            webhooks = 0
            if protocol == "cne":  # they outlive the client; most are in this server, at both ends
                webhooks = done.get("subscriptions: tried", 0) + done.get("black_holes: tried", 0)
                webhooks += done.get("endless_continue: tried", 0)
            allowed = files + FILES_MORE + 3 * webhooks
            street.until(lambda n=allowed: street.open_files() <= n, "what it held to be let go")
            assert street.faults_told() == []
            print(f"{protocol}: {done}; {street.memory_mib()} MiB")
        street.finish()
        print(street.table())


@pytest.mark.timeout(900)
def test_a_lost_a_repeated_or_a_misplaced_event_would_be_noticed(tmp_path: Path) -> None:
    with Street(tmp_path) as street:
        street.until(lambda: all(len(seen_once(each)) > 1 for each in street.readers), "two events to be seen by all")
        street.finish()
        for reader in street.readers:
            seen = list(seen_once(reader))
            hurt = [seen[1:], [seen[1], seen[0], *seen[2:]]]
            if reader.name != "cne":
                hurt.append([*seen, seen[-1]])
            for each in hurt:
                reader.seen = each
                with pytest.raises(AssertionError, match=f"{reader.name} did not see"):
                    street.compare()
            reader.seen = seen
        street.compare()
        assert {reader.name for reader in street.readers} == {kind.name for kind in READERS}


@pytest.mark.parametrize("has_users", [False, True])
def test_the_memory_that_strangers_take_comes_back_when_they_leave(tmp_path: Path, has_users: bool) -> None:
    arguments: tuple[str, ...] = ()
    if has_users:
        (tmp_path / "users.toml").write_text(configuration(), encoding="utf-8")
        arguments = ("--config", "users.toml")
    with RunningServer("--storage", "memory", *arguments, cwd=tmp_path, program=PROGRAM) as server:
        before = resident_mib(server.process.pid)
        for _ in range(ROUNDS):
            strangers = [almost_8_mib(server) for _ in range(STRANGERS)]
            if has_users:
                assert resident_mib(server.process.pid) < before + SLACK_MIB, "strangers are given large messages"
            for stranger in strangers:
                stranger.close()
            eventually(lambda: "headwater_http_connections_open 1.0" in metrics(server), lambda: metrics(server))
        after = resident_mib(server.process.pid)
    assert after < before + SLACK_MIB, f"{before} MiB before, {after} MiB after"


def almost_8_mib(server: RunningServer) -> socket.socket:
    """A WebSocket that nobody logged in on, with a message of 8 MiB that lacks its last byte."""
    address = urlsplit(server.url)
    stranger = socket.create_connection((address.hostname or "", address.port or 0), timeout=30)
    stranger.sendall(
        b"GET /futoin/default HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    assert stranger.recv(4096).startswith(b"HTTP/1.1 101 ")
    with suppress(OSError):  # it is sent away
        stranger.sendall(b"\x82\xff" + (8 * 2**20).to_bytes(8) + bytes(4) + bytes(8 * 2**20 - 1))
    return stranger


def metrics(server: RunningServer) -> str:
    login = base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
    return server.ask("/metrics", headers={"authorization": f"Basic {login}"})[1]
