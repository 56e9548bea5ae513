"""What a replica forwards, what becomes of it when connections and primaries end, and how much it holds meanwhile."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from headwater.core.loop.memory import MemoryAccount, Share
from headwater.homes.home_secret import HomeSecret
from headwater.http import Message, Receive, Scope, Send
from headwater.http.asgi import MEMORY
from headwater.http.outgoing import Tls
from headwater.server.front.forwarding import connections, forwarder
from headwater.server.front.forwarding.forwarder import Forwarder
from tests.amqp.certificates import Authority
from tests.http.asgi import scope

from .hop import (
    HOST,
    OK,
    Script,
    Secret,
    answering,
    exchanged,
    forwarding,
    nothing,
    pair,
    parsed,
    problem,
    run,
    scripted,
)

POST = b"POST /logs/orders/append HTTP/1.1\r\ncontent-type: application/json\r\n"


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_what_could_not_be_sent_is_refused_and_says_so() -> None:
    async def scenario() -> None:
        gone = closed_port()
        async with forwarding(Secret(), lambda: gone) as replica:
            status, fields, body = await replica.ask(POST + b"content-length: 4\r\n", b"body")
            assert (status, fields["retry-after"], problem(body)) == (503, "5", "unready")
            assert "was not sent to the primary" in json.loads(body)["detail"]
            assert replica.forwarder.counts.not_sent == 1
            status, _, body = await replica.ask(b"POST /futoin/a HTTP/1.1\r\n")
            assert status == 503 and json.loads(body)["e"] == "InternalError"

    run(scenario)


def test_the_second_try_goes_to_who_is_the_primary_then() -> None:
    async def scenario() -> None:
        script = Script(answering(lambda: script, OK))
        async with scripted(script) as helper:
            named = [closed_port(), closed_port(), script.url]  # asked by the gate first

            def primary() -> str:
                return named.pop(0) if len(named) > 1 else named[0]

            async with forwarding(Secret(), primary) as replica:
                status, fields, _ = await replica.ask(POST + b"content-length: 4\r\n", b"body")
                assert (status, fields["headwater-primary"]) == (200, script.url)
            assert helper.forwarder.counts.requests == 0
        assert len(script.seen) == 1

    run(scenario)


def test_an_answer_that_does_not_come_is_an_unknown_outcome() -> None:
    async def scenario() -> None:
        async def take_and_die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await script.head(reader)
            await reader.readexactly(4)

        script = Script(take_and_die)
        async with scripted(script) as replica:
            status, _, body = await replica.ask(POST + b"content-length: 4\r\n", b"body")
            assert (status, problem(body), json.loads(body)["log"]) == (504, "outcome_unknown", "orders")
            status, _, body = await replica.ask(
                b"PUT /logs/new HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 4\r\n", b"body"
            )
            assert (status, json.loads(body)["log"]) == (504, "$state")
            assert len(script.seen) == 2, "neither is sent again"

    run(scenario)


def test_a_request_to_a_server_that_is_not_the_primary_any_more_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder, "LOOK_S", 0.01)

    async def scenario() -> None:
        async def freeze(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await script.head(reader)
            frozen.set()
            await reader.read()

        frozen, named = asyncio.Event(), [""]
        script = Script(freeze)
        async with scripted(script), forwarding(Secret(), lambda: named[0]) as replica:
            named[0] = script.url
            asking = asyncio.create_task(replica.ask(POST))
            await frozen.wait()
            named[0] = closed_port()
            assert (await asking)[0] == 504

    run(scenario)


def test_a_stop_ends_streams_and_lets_requests_finish() -> None:
    go = asyncio.Event()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        is_stream = scope["path"] == "/console/live"
        fields = [(b"content-type", b"text/event-stream")] if is_stream else []
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        await go.wait()
        await send({"type": "http.response.body", "body": b"done"})

    async def scenario() -> None:
        async with pair(application) as (replica, _):
            ends = []
            for path in (b"/console/live", b"/other"):
                reader, writer = await asyncio.open_connection(*replica.address)
                writer.write(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n")
                await reader.readuntil(b"begun")
                ends.append((reader, writer))
            replica.forwarder.stop()
            assert not (await ends[0][0].read()).endswith(b"0\r\n\r\n")
            go.set()
            assert (await ends[1][0].read()).endswith(b"done\r\n0\r\n\r\n")
            for _, writer in ends:
                writer.close()
            assert not replica.forwarder.takes(scope("/x"))

    run(scenario)


def test_http_1_0_stays_so() -> None:
    async def scenario() -> None:
        script = Script(answering(lambda: script, b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nto its end", times=1))
        async with scripted(script) as replica:
            answer = await exchanged(replica.address, b"GET /x HTTP/1.0\r\n" + HOST + b"\r\n")
            assert answer.endswith(b"\r\n\r\nto its end")
        assert script.seen[0].startswith(b"get /x http/1.0\r\n")

    run(scenario)


def test_what_is_not_forwarded() -> None:
    async def scenario() -> None:
        secret = Secret()
        taking = Forwarder(lambda: "http://primary.example", secret.home)
        plain = scope("/futoin/a", "POST")
        assert taking.takes(plain)
        assert taking.takes({**plain, "type": "websocket"})
        assert not taking.takes({**plain, "extensions": {"tls": {"client_cert_name": "CN=a"}}})
        assert not taking.takes(scope("/x", "POST", [(b"transfer-encoding", b"chunked")], version="1.0"))
        assert not taking.takes(scope("/x", "CONNECT"))
        assert not Forwarder(lambda: None, secret.home).takes(plain)

    run(scenario)


def test_a_replica_without_the_secret_of_its_home_fetches_it() -> None:
    async def scenario() -> None:
        script, secret, fetched = Script(answering(lambda: script, OK)), Secret(), []
        value = secret.value
        secret.state.delete("home", "secret")

        def fetch() -> None:
            fetched.append(value)
            if len(fetched) > 1:
                secret.state.put("home", "secret", value)

        secret.home = HomeSecret(secret.state, fetch=fetch)
        async with scripted(script), forwarding(secret, lambda: script.url) as replica:
            status, _, body = await replica.ask(b"GET /x HTTP/1.1\r\n")
            assert (status, problem(body)) == (503, "unready")
            assert "this replica has not received the secret of its home yet" in json.loads(body)["detail"]
            secret.home._fetched_at = float("-inf")
            for _ in range(2):
                assert (await replica.ask(b"GET /x HTTP/1.1\r\n"))[0] == 200
            assert len(fetched) == 2 and all(b"headwater-home-secret: " + value in head for head in script.seen)

    run(scenario)


def test_a_connection_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECT_S", 0.05)

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            address = full.getsockname()
            waiting = []
            for _ in range(4):  # the system answers no more of them
                each = socket.socket()
                each.setblocking(False)
                each.connect_ex(address)
                waiting.append(each)
            async with forwarding(Secret(), lambda: f"http://127.0.0.1:{address[1]}") as replica:
                assert (await replica.ask(POST))[0] == 503
            for each in waiting:
                each.close()

    run(scenario)


def test_a_body_waits_for_a_primary_that_does_not_read() -> None:
    """What a client can send is bounded, whatever it has."""

    async def scenario() -> None:
        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await script.head(reader)
            await go.wait()
            body = await reader.readexactly(size)
            assert body == bytes(size)
            writer.write(OK)

        size, go = 64 * 2**20, asyncio.Event()
        script = Script(hold)
        async with scripted(script) as replica:
            reader, writer = await asyncio.open_connection(*replica.address)
            writer.write(POST + HOST + b"content-length: %d\r\n\r\n" % size)
            writer.write(bytes(size))
            before = -1
            while before != (now := writer.transport.get_write_buffer_size()):
                before = now
                await asyncio.sleep(0.2)
            assert now > size // 2, "the system holds some of it, and the replica very little"
            go.set()
            status, _, _ = parsed(await reader.readuntil(b"ok"))
            assert status == 200
            writer.close()

    run(scenario)


def test_an_answer_waits_for_a_client_that_does_not_read() -> None:
    sent = [0]
    piece, pieces = bytes(2**20), 64

    async def much(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(pieces):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            sent[0] += 1
        await send({"type": "http.response.body", "body": b""})

    async def scenario() -> None:
        async with pair(much) as (replica, _):
            reader, writer = await asyncio.open_connection(*replica.address, limit=2**16)
            writer.write(b"GET /x HTTP/1.1\r\n" + HOST + b"connection: close\r\n\r\n")
            before = -1
            while before != sent[0] or not sent[0]:
                before = sent[0]
                await asyncio.sleep(0.2)
            assert sent[0] < pieces // 2
            size = 0
            while data := await reader.read(2**20):
                size += len(data)
            assert size > pieces * len(piece)
            writer.close()

    run(scenario)


def test_what_is_on_its_way_counts_as_the_clients_memory() -> None:
    async def scenario() -> None:
        account = MemoryAccount(2**20)
        share = Share(account)
        held: list[int] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": bytes(100_000), "more_body": False}

        class Connection:
            async def send(self, data: bytes) -> None:
                held.append(share.bytes)

        call: Any = forwarder._Call(is_sent=False)
        call.connection = Connection()
        request = {**scope("/x", "POST", [(b"content-length", b"100000")]), MEMORY: share}
        assert await forwarder._send_body(call, request, receive)
        assert held == [100_000] and share.bytes == 0

    run(scenario)


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_primary_is_verified_by_its_certificate(tmp_path: Path, is_trusted: bool) -> None:
    authority = Authority(tmp_path, "authority")
    own = authority.issue("primary", "IP:127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(own.file, own.key)

    async def scenario() -> None:
        async with pair(nothing, tls=tls) as (replica, url):
            if is_trusted:
                replica.forwarder._connections._tls = Tls(authority.own.file)
            for _ in range(2):
                status, fields, body = await replica.ask(POST + b"content-length: 4\r\n", b"body")
                assert (status, fields.get("headwater-primary")) == ((204, url) if is_trusted else (503, None))
            assert is_trusted or "CERTIFICATE_VERIFY_FAILED" in json.loads(body)["detail"]

    run(scenario)


def test_requests_are_counted() -> None:
    async def scenario() -> None:
        script = Script(answering(lambda: script, OK))
        async with scripted(script) as replica:
            await replica.ask(POST)
            assert replica.gate.meter.counts == {("POST", forwarder.ROUTE, 200): 1}
            assert replica.forwarder.counts.requests == 1 and replica.forwarder.running == 0
            assert (await replica.ask(b"GET /read HTTP/1.1\r\n"))[0] == 204
            assert replica.forwarder.counts.requests == 1

    run(scenario)
