"""When the bulk process starts: for its first client, who waits for it; until then its port is held."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.flight as flight
import pytest

from headwater.flight.client import BulkClient
from headwater.server.bulk.early_connections import EarlyConnections
from headwater.server.bulk.supervisor import BulkSettings, BulkSupervisor, Reservation
from tests.waiting import eventually

from ..running import RunningServer
from ..test_lifecycle import certificate

__all__ = ["certificate"]
WITH_FLIGHT = ("--flight-enabled", "true", "--flight-port", "0")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer("--data", "data", "--log", "orders", *WITH_FLIGHT, cwd=tmp_path) as running:
        yield running


def children(server: RunningServer) -> list[str]:
    tasks = Path(f"/proc/{server.process.pid}/task").glob("*/children")
    return [child for each in tasks for child in each.read_text().split()]


def place_of(url: str) -> tuple[str, int]:
    host, _, port = url.partition("://")[2].rpartition(":")
    return host, int(port)


def test_it_starts_with_its_first_client_who_waits_for_it(server: RunningServer) -> None:
    url = server.further_url("grpc")
    assert not children(server)
    told = server.ask("/metrics")[1]
    assert "headwater_bulk_up 1.0" in told and "headwater_bulk_running 0.0" in told
    assert server.ask("/health/ready")[0] == 200
    with BulkClient(url) as first:
        assert first.head("orders").head == 0
        assert len(children(server)) == 1
        with BulkClient(url) as later:
            assert later.head("orders").head == 0
        told = server.ask("/metrics")[1]
        assert "headwater_bulk_up 1.0" in told and "headwater_bulk_running 1.0" in told
        assert "headwater_bulk_deaths_total 0.0" in told
    assert server.terminate() == 0


def test_all_that_come_meanwhile_are_served(server: RunningServer) -> None:
    host, port = place_of(server.further_url("grpc"))
    together = threading.Barrier(10)

    def asks(number: int) -> int:
        together.wait()
        options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
        with flight.FlightClient(f"grpc://{host}:{port}", generic_options=options) as client:
            return len(list(client.do_action(flight.Action("logs", b""))))

    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(asks, range(10))) == [1] * 10
    assert len(children(server)) == 1


def test_tls(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    files = ("--tls-certificate", str(certificate[0]), "--tls-key", str(certificate[1]))
    context = ssl.create_default_context(cafile=certificate[0])
    with RunningServer("--data", "data", *files, *WITH_FLIGHT, cwd=tmp_path, context=context) as server:
        url = server.further_url("grpc+tls")
        assert not children(server)
        with flight.FlightClient(url, tls_root_certs=certificate[0].read_bytes()) as client:
            assert list(client.do_action(flight.Action("logs", b"")))
        assert server.terminate() == 0


def test_who_connects_and_says_nothing_starts_nothing(server: RunningServer) -> None:
    place = place_of(server.further_url("grpc"))
    with socket.create_connection(place) as silent:
        socket.create_connection(place).close()  # a probe
        assert server.ask("/logs/orders/head")[0] == 200
        assert not children(server)
        silent.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        assert silent.recv(9)  # the settings of HTTP/2
    assert len(children(server)) == 1


def test_after_a_death_it_starts_without_a_client(server: RunningServer) -> None:
    with BulkClient(server.further_url("grpc")) as bulk:
        assert bulk.head("orders").head == 0
        [before] = children(server)
        os.kill(int(before), signal.SIGKILL)
        eventually(lambda: children(server) not in ([], [before]))
        eventually(lambda: "headwater_bulk_running 1.0" in server.ask("/metrics")[1])
        assert "headwater_bulk_deaths_total 1.0" in server.ask("/metrics")[1]
        eventually(lambda: bulk.head("orders").head == 0)


def test_stop_while_it_starts(tmp_path: Path) -> None:
    soon = ("--data", "data", *WITH_FLIGHT, "--limits-stop-ms", "1s")
    with (
        RunningServer(*soon, cwd=tmp_path) as server,
        socket.create_connection(place_of(server.further_url("grpc"))) as client,
    ):
        client.sendall(b"PRI")
        server.wait_for("starting the bulk process for its first client")
        started = children(server)
        assert server.terminate() == 0
        assert not any(Path(f"/proc/{each}").exists() for each in started)
        client.settimeout(30)
        until_it_ends(client)


def until_it_ends(client: socket.socket) -> None:
    with suppress(ConnectionError):
        while client.recv(65536):
            pass


@pytest.mark.parametrize("option", [socket.SO_REUSEADDR, socket.SO_REUSEPORT])
def test_nobody_else_takes_the_port_meanwhile(server: RunningServer, option: int) -> None:
    place = place_of(server.further_url("grpc"))
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.setsockopt(socket.SOL_SOCKET, option, 1)
        other.bind(place)
        other.listen()


def test_a_start_that_fails_is_told_to_who_waits_and_tried_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    reservation = Reservation("127.0.0.1", 0, "--flight-port")
    settings = BulkSettings(reservation.host, reservation.port, "", "", 1, True, 2**20, 0, 1000, "info", 2**28)
    start = asyncio.create_subprocess_exec
    refusals = [OSError("none is left")]

    async def sometimes(*arguments: Any, **named: Any) -> asyncio.subprocess.Process:
        if refusals:
            raise refusals.pop()
        return await start(*arguments, **named)

    async def ask() -> bytes:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", reservation.port)
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            answer = await reader.read(9)
            writer.close()
        except ConnectionError:
            return b""
        return answer

    async def scenario() -> None:
        supervisor = BulkSupervisor(settings, reservation, {}, waits=True)
        await supervisor.start()
        assert supervisor.is_up and not supervisor.is_serving
        assert await ask() == b""
        async with asyncio.timeout(60):
            assert supervisor.deaths == 1 and not supervisor.is_up
            while not await ask():
                await asyncio.sleep(0.01)
            while not supervisor.is_up:
                await asyncio.sleep(0.01)
        await supervisor.stop()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", sometimes)
    asyncio.run(scenario())
    reservation.close()


def test_held_connections_are_relayed_with_their_ends_and_their_address() -> None:
    holder = socket.create_server(("127.0.0.1", 0))
    port = holder.getsockname()[1]
    client = socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.9", 0))
    held = EarlyConnections(holder)
    held.take()
    with client, socket.create_server(("127.0.0.1", port)) as server:  # nobody holds the port any more
        held.relay_to("127.0.0.1", port)
        relayed, (address, source) = server.accept()
        with relayed:
            client.sendall(b"question")
            client.shutdown(socket.SHUT_WR)
            assert b"".join(iter(lambda: relayed.recv(100), b"")) == b"question"
            assert held.address_of(f"ipv4:{address}:{source}") == "127.0.0.9"
            assert held.address_of(f"ipv4:{address}:1") == address == "127.0.0.1"
            relayed.sendall(b"answer")
        assert b"".join(iter(lambda: client.recv(100), b"")) == b"answer"
    eventually(lambda: held.address_of(f"ipv4:{address}:{source}") == "127.0.0.1")


def test_addresses_of_ipv4_are_the_same_on_a_socket_for_both() -> None:
    holder = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    port = holder.getsockname()[1]
    client = socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.9", 0))
    held = EarlyConnections(holder)
    held.take()
    with client, socket.create_server(("127.0.0.1", port)) as server:
        held.relay_to("127.0.0.1", port)
        relayed, (address, source) = server.accept()
        with relayed:
            client.sendall(b"question")
            assert relayed.recv(1) == b"q"
            assert held.address_of(f"ipv4:{address}:{source}") == "127.0.0.9"


def test_a_side_that_takes_nothing_holds_up_the_other() -> None:
    holder = socket.create_server(("127.0.0.1", 0))
    port = holder.getsockname()[1]
    client = socket.create_connection(("127.0.0.1", port))
    held = EarlyConnections(holder)
    held.take()
    with client, socket.create_server(("127.0.0.1", port)) as server:
        held.relay_to("127.0.0.1", port)
        relayed, _ = server.accept()
        client.settimeout(1)
        sent = 0
        with relayed, pytest.raises(TimeoutError):
            while sent < 2**30:
                sent += client.send(b"x" * 2**16)
    assert sent < 2**26  # buffers of the system


def test_a_start_waits_until_a_killed_server_has_left_the_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as previous, ThreadPoolExecutor(1) as aside:
        port = str(previous.getsockname()[1])
        starting = aside.submit(RunningServer, "--flight-enabled", "true", "--flight-port", port, cwd=tmp_path)
        said = tmp_path / "stderr.txt"
        eventually(
            lambda: (
                said.exists()
                and f'waiting, because it may belong to a killed server" port={port} '
                in said.read_text(encoding="utf-8")
            )
        )
        previous.close()
        with starting.result() as server:
            assert server.further_url("grpc").endswith(f":{port}")
            assert server.terminate() == 0
