"""Requests that ask for HTTP/2 on the way (`Upgrade: h2c`), as raw bytes: they are answered as if they did not."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headwater.server.config.settings import Http
from headwater.server.httpd.server import HttpServer
from headwater.server.httpd.upgrades import upgrade_of
from headwater.server.process.sockets import listen

from ..running import SILENCE_S_MAX, RunningServer

UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
LENGTH, CHUNKED = (
    b"content-length: 11\r\n\r\nhello world",
    b"transfer-encoding: chunked\r\n\r\n6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n",
)
LAST = b"GET /last HTTP/1.1\r\nhost: b\r\nconnection: close\r\n\r\n"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    told = {"asked": [scope["method"], scope["path"], headers.get("host"), headers.get("x")], "body": body.decode()}
    answer = json.dumps(told).encode() + b"\n"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(answer))]})
    await send({"type": "http.response.body", "body": answer})


def answers_to(pieces: list[bytes]) -> list[Any]:
    """What comes back for what is sent in these pieces, a line of JSON each."""

    async def scenario() -> bytes:
        sockets = listen("127.0.0.1", 0, "--http-port")
        server = HttpServer(echo, sockets, Http(), None)  # type: ignore[arg-type]
        await server.start()
        reader, writer = await asyncio.open_connection(*sockets[0].getsockname())
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.001)
        async with asyncio.timeout(SILENCE_S_MAX):
            received = await reader.read()
        writer.close()
        await server.stop()
        return received

    return [json.loads(line) for line in asyncio.run(scenario()).splitlines() if line.startswith(b"{")]


@pytest.mark.parametrize("framed", [LENGTH, CHUNKED], ids=["length", "chunked"])
@pytest.mark.parametrize("piece_bytes", [1, 50, 10_000], ids=["by bytes", "in pieces", "at once"])
def test_its_body_is_read(framed: bytes, piece_bytes: int, caplog: pytest.LogCaptureFixture) -> None:
    sent = b"POST /a?b=c HTTP/1.1\r\nHost: here\r\nX: y\r\n" + UPGRADE + framed + LAST
    answers = answers_to([sent[start : start + piece_bytes] for start in range(0, len(sent), piece_bytes)])
    assert answers == [
        {"asked": ["POST", "/a", "here", "y"], "body": "hello world"},
        {"asked": ["GET", "/last", "b", None], "body": ""},
    ]
    assert "upgrade" not in caplog.text.lower()


def test_many_on_one_connection_are_answered_in_order() -> None:
    request = b"POST /%d HTTP/1.1\r\nhost: a\r\n" + UPGRADE + b"content-length: 2\r\n\r\n%02d"
    get = b"GET /get HTTP/1.1\r\nhost: a\r\n" + UPGRADE + b"\r\n"
    answers = answers_to([b"".join(request % (number, number) + get for number in range(20)) + LAST])
    assert [(each["asked"][1], each["body"]) for each in answers] == [
        *(pair for number in range(20) for pair in ((f"/{number}", f"{number:02}"), ("/get", ""))),
        ("/last", ""),
    ]


def test_a_target_with_a_host_still_counts_as_its_host() -> None:
    sent = b"POST http://there/a HTTP/1.1\r\nhost: here\r\n" + UPGRADE + LENGTH + LAST
    assert answers_to([sent])[0] == {"asked": ["POST", "/a", "there", None], "body": "hello world"}


def test_a_request_line_of_its_body_is_no_request() -> None:
    hidden = b"GET /hidden HTTP/1.1\r\nhost: a\r\n\r\n"
    sent = b"POST /a HTTP/1.1\r\nhost: a\r\n" + UPGRADE + b"content-length: %d\r\n\r\n" % len(hidden) + hidden + LAST
    assert [each["asked"][1] for each in answers_to([sent])] == ["/a", "/last"]


def test_curl_with_http2_appends_and_reads(tmp_path: Path) -> None:
    with RunningServer("--storage", "memory", "--log", "orders", cwd=tmp_path) as server:

        def curl(path: str, body: str) -> Any:
            command = ["curl", "--silent", "--show-error", "--max-time", str(SILENCE_S_MAX), "--http2", "--json", "@-"]
            command.append(f"{server.url}{path}")
            done = subprocess.run(command, input=body, check=True, capture_output=True, text=True)
            return json.loads(done.stdout)

        large = "x" * 200_000  # curl asks for `100 Continue` first
        events = [{"type": "A", "data": "1", "tags": []}, {"type": "B", "data": large, "tags": []}]
        assert curl("/logs/orders/append", json.dumps({"events": events}))["sequence_number"] == 2
        found = curl("/logs/orders/read", '{"query": {"items": [{"types": ["B"], "tags": []}]}}')
        assert found[0]["event"]["data"] == large


@pytest.mark.parametrize(
    "values", [[b"Upgrade"], [b"keep-alive, Upgrade"], [b"Upgrade", b"keep-alive"], [b"x", b"upgrade"]]
)
def test_several_fields_of_one_name_are_one_list(values: list[bytes]) -> None:
    fields = [(b"upgrade", b"WebSocket"), *((b"connection", value) for value in values)]
    assert upgrade_of(fields) == b"websocket"
    assert upgrade_of(fields[:1]) is None
