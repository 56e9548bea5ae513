"""HTTP/1.0, which many proxies speak by default: it gets whole answers, with their length, or none."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.client import ServerUnreachable, connect
from headwater.core import Event
from headwater.formats import packed
from tests.client.gateway import Gateway

from ..running import RunningServer

EVENTS = 3500
FORMS = (
    "application/x-ndjson", "application/json", "application/vnd.msgpack", "application/vnd.apache.arrow.stream",
    "application/cloudevents-batch+json",
)  # fmt: skip
ALL = b'{"query": "all"}'


class Answer(NamedTuple):
    status: int
    fields: dict[str, str]
    body: bytes


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer("--storage", "memory", cwd=tmp_path_factory.mktemp("server")) as server:
        fill(server.url)
        yield server


def fill(url: str) -> None:
    """A log of four pages, of 5 to 8 MiB; and one of 9 MiB."""
    with connect(url) as client:
        for name, size in (("pages", 1400), ("long", 2700)):
            log = client.create(name)
            for start in range(0, EVENTS, 500):
                log.append([Event("A", b"%d" % number + b"x" * size) for number in range(start, start + 500)])


def ask(url: str, path: str, body: bytes | None = None, accept: str = "*/*", method: str = "") -> Answer:
    """The answer to HTTP/1.0, up to the end of its connection."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 60) as sock:
        sock.sendall(request(method or ("GET" if body is None else "POST"), path, body, accept))
        with sock.makefile("rb") as file:
            head, _, rest = file.read().partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return Answer(int(status.split()[1]), dict(line.split(": ", 1) for line in lines), rest)


def request(method: str, path: str, body: bytes | None, accept: str = "*/*") -> bytes:
    length = "" if body is None else f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return f"{method} {path} HTTP/1.0\r\naccept: {accept}\r\n{length}\r\n".encode() + (body or b"")


def ask_newer(url: str, path: str, body: bytes | None, accept: str) -> Answer:
    """The same by HTTP/1.1."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
    fields = {"accept": accept, "content-type": "application/json"}
    connection.request("GET" if body is None else "POST", path, body, fields)
    with connection.getresponse() as answer:
        found = Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    connection.close()
    return found


@pytest.mark.parametrize("accept", FORMS)
def test_a_read_of_many_pages_comes_whole_with_its_length(server: RunningServer, accept: str) -> None:
    old, new = (each(server.url, "/logs/pages/read", ALL, accept) for each in (ask, ask_newer))
    assert (old.status, new.status) == (200, 200)
    assert new.fields["transfer-encoding"] == "chunked"
    assert "transfer-encoding" not in old.fields
    assert int(old.fields["content-length"]) == len(old.body)
    assert old.body == new.body
    for name in ("content-type", "headwater-head", "headwater-incarnation"):
        assert old.fields[name] == new.fields[name]


@pytest.mark.parametrize("path", ["/dcb/pages/read?query=all", "/management/log", "/management?types=log,server"])
def test_other_answers_in_pieces_come_whole_with_their_length(server: RunningServer, path: str) -> None:
    answer = ask(server.url, path)
    assert answer.status == 200, answer.body[:300]
    assert int(answer.fields["content-length"]) == len(answer.body)


@pytest.mark.parametrize("accept", FORMS)
def test_a_longer_read_is_refused_in_every_form_and_says_what_to_do(server: RunningServer, accept: str) -> None:
    answer = ask(server.url, "/logs/long/read", ALL, accept)
    assert (answer.status, answer.fields["content-type"]) == (505, "application/problem+json")
    problem = json.loads(answer.body)
    assert problem["type"] == "urn:headwater:problem:http_version_too_old"
    assert (problem["allowed"], problem["unit"]) == (8 * 1024 * 1024, "bytes")
    assert "proxy_http_version 1.1" in problem["detail"]
    limited = ask(server.url, "/logs/long/read", b'{"query": "all", "limit": 2000}', accept)
    assert (limited.status, int(limited.fields["content-length"])) == (200, len(limited.body))


def test_a_subscription_comes_event_by_event(server: RunningServer) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 60) as sock, sock.makefile("rb") as file:
        sock.sendall(request("GET", f"/logs/pages/subscribe?query=all&after={EVENTS - 1}", None))
        lines = iter(file.readline, b"")
        assert b"content-type: text/event-stream; charset=utf-8\r\n" in list(iter(lambda: next(lines), b"\r\n"))
        assert next(line for line in lines if line.startswith(b"id: ")) == b"id: %d\n" % EVENTS


def test_a_read_behind_a_proxy_is_never_short_where_its_server_is_killed(tmp_path: Path) -> None:
    with RunningServer("--storage", "memory", cwd=tmp_path) as server, Gateway(port_of(server)) as gateway:
        fill(server.url)
        gateway.pauses = True
        with connect(gateway.url, retry_s=0.2) as client:
            reading = client.log("pages").read()
            assert gateway.is_paused.wait(60)
            server.process.kill()
            server.process.wait()
            gateway.go.set()
            try:
                found = sum(1 for _ in reading)
            except ServerUnreachable:
                found = -1  # it was cut, and is told so
        assert found in (-1, EVENTS)


def test_a_client_behind_a_proxy_reads_what_is_longer_because_it_demands_the_end(server: RunningServer) -> None:
    with Gateway(port_of(server)) as gateway, connect(gateway.url) as client:
        for name in ("pages", "long"):
            assert sum(1 for _ in client.log(name).read()) == EVENTS


@pytest.mark.parametrize(("accept", "end"), [
    ("application/vnd.msgpack;end=page", packed.END), ("application/x-ndjson;end=line", b'\n{"end":%d}\n' % EVENTS),
])  # fmt: skip
@pytest.mark.parametrize("log", ["pages", "long"])
def test_who_demands_an_end_is_streamed_to(server: RunningServer, log: str, accept: str, end: bytes) -> None:
    old, new = (each(server.url, f"/logs/{log}/read", ALL, accept) for each in (ask, ask_newer))
    assert (old.status, new.status) == (200, 200)
    assert not {"transfer-encoding", "content-length"} & set(old.fields)
    assert old.fields["content-type"] == new.fields["content-type"] == accept
    assert old.body == new.body
    assert old.body.endswith(end)


def port_of(server: RunningServer) -> int:
    return int(server.url.rpartition(":")[2])
