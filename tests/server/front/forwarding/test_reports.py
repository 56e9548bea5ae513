"""Bugs that were reported of other proxies, each as a test.

| here | reported of |
| --- | --- |
| an idle connection that the server closed is used | envoyproxy/envoy#1979, sozu-proxy/sozu#1442 |
| a POST is sent again after its connection ended | varnishcache/varnish-cache#4413 |
| Transfer-Encoding and Content-Length are both passed on | tinyproxy/tinyproxy#609, litespeedtech/openlitespeed#392 |
| `Connection` names fields that the proxy adds | golang/go#46313, golang/go#50580 |
| servers send a request round in a ring, or to themselves | rqlite/rqlite#2616, hashicorp/vault#7784 |
| 413 is lost while the body is sent | envoyproxy/envoy#2929, villadora/express-http-proxy#546 |
| `Expect: 100-continue` is answered too early, or never | seanmonstar/warp#383, haproxy/haproxy#3316 |
| a cut answer looks complete | h2o/h2o#1031 |
| HEAD, 204 and 304 are waited for as if they had a body | freeunitorg/freeunit#295 |
| Server-Sent Events wait in a buffer, a client's end is not passed on | almeidapaulopt/tsdproxy#376, nuxt/nuxt#31361 |
| a WebSocket outlives its server, or its refusal | bleenco/bproxy#46, http-party/node-http-proxy#783 |
| a client says itself from which address it comes | golang/go#36672 |
| the query is lost on the way to the leader | rqlite/rqlite#329 |
"""

from __future__ import annotations

import asyncio
import json
import struct

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from headwater.http import Receive, Scope, Send
from headwater.http.asgi import MEMORY
from headwater.server.config.settings import Http

from .hop import (
    HOST,
    OK,
    Replica,
    Script,
    Secret,
    answering,
    exchanged,
    forwarding,
    pair,
    parsed,
    run,
    scripted,
)

POST = b"POST /logs/orders/append HTTP/1.1\r\ncontent-type: application/json\r\n"


async def mirror(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what it was asked."""
    body, has_more = b"", True
    while has_more:
        message = await receive()
        body, has_more = body + message["body"], message["more_body"]
    seen = {
        "method": scope["method"],
        "path": scope["path"],
        "query": scope["query_string"].decode(),
        "client": scope["client"],
        "scheme": scope["scheme"],
        "fields": [[name.decode(), value.decode()] for name, value in scope["headers"]],
        "body": body.decode(),
    }
    text = json.dumps(seen).encode()
    fields = [(b"content-length", b"%d" % len(text)), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
    await send({"type": "http.response.start", "status": 200, "headers": fields})
    await send({"type": "http.response.body", "body": text})


def test_an_idle_connection_that_the_primary_closed_is_not_used() -> None:
    async def scenario() -> None:
        script = Script(answering(lambda: script, OK, times=1), answering(lambda: script, OK))
        async with scripted(script) as replica:
            assert (await replica.ask(POST))[0] == 200
            while replica.forwarder._connections._all:
                await asyncio.sleep(0)
            assert (await replica.ask(POST))[0] == 200
        assert (len(script.seen), script.connections) == (2, 2)

    run(scenario)


def test_idle_connections_are_used_again() -> None:
    async def scenario() -> None:
        script = Script(answering(lambda: script, OK))
        async with scripted(script) as replica:
            assert [(await replica.ask(POST))[0] for _ in range(5)] == [200] * 5
        assert (len(script.seen), script.connections) == (5, 1)

    run(scenario)


@pytest.mark.parametrize(
    ("target", "expected", "times"),
    [
        (b"GET /x", 200, 3),
        (b"POST /logs/orders/append", 504, 2),
        (b"DELETE /logs/orders", 504, 2),
        (b"GET /futoin/orders", 504, 2),
    ],
)
def test_only_a_safe_request_is_sent_again_if_an_idle_connection_ends_under_it(
    target: bytes, expected: int, times: int
) -> None:
    async def scenario() -> None:
        async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await script.head(reader)
            writer.write(OK)
            await script.head(reader)  # and hangs up

        script = Script(once, answering(lambda: script, OK))
        async with scripted(script) as replica:
            assert (await replica.ask(b"GET /x HTTP/1.1\r\n"))[0] == 200
            status, _, _ = await replica.ask(target + b" HTTP/1.1\r\ncontent-type: a/b\r\n")
            assert status == expected
            assert replica.forwarder.counts.unknown == (expected == 504)
        assert len(script.seen) == times

    run(scenario)


def test_a_body_is_framed_once() -> None:
    async def scenario() -> None:
        script = Script(answering(lambda: script, OK))
        smuggled = b"GET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n"
        async with scripted(script) as replica:
            both = b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled
            refused = await exchanged(replica.address, POST + HOST + both)
            assert refused.startswith(b"HTTP/1.1 400 ")
            assert script.seen == []
            twice = b"content-length: 4\r\ncontent-length: 40\r\n\r\nbody" + smuggled
            assert (await exchanged(replica.address, POST + HOST + twice)).startswith(b"HTTP/1.1 400 ")
            assert script.seen == []

    run(scenario)


def test_what_looks_like_a_request_in_a_body_is_passed_on_as_a_body() -> None:
    async def scenario() -> None:
        inner = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n"
        async with pair(mirror) as (replica, _):
            for head, body in (
                (b"content-length: %d\r\n" % len(inner), inner),
                (b"transfer-encoding: chunked\r\n", b"%x\r\n%b\r\n0\r\nsome: trailer\r\n\r\n" % (len(inner), inner)),
            ):
                status, _, answer = await replica.ask(POST + head, body)
                assert status == 200 and json.loads(answer)["body"] == inner.decode()
                assert ["some", "trailer"] not in json.loads(answer)["fields"]

    run(scenario)


@pytest.mark.parametrize("empty", [b"", b"connection: \r\n"])
def test_connection_names_no_field_that_a_replica_adds(empty: bytes) -> None:
    async def scenario() -> None:
        named = b"connection: headwater-peer, headwater-home-secret, content-length, host, x-own\r\n"
        more = b"x-own: 1\r\nx-other: 2\r\nkeep-alive: timeout=5\r\nte: trailers\r\nproxy-connection: a\r\n"
        async with pair(mirror) as (replica, _):
            status, fields, answer = await replica.ask(POST + empty + named + more + b"content-length: 4\r\n", b"body")
        seen = json.loads(answer)
        assert status == 200 and seen["body"] == "body"
        assert seen["client"][0] == "127.0.0.1"
        assert sorted(name for name, _ in seen["fields"]) == ["content-length", "content-type", "host", "x-other"]
        assert fields["set-cookie"] == "b=2"

    run(scenario)


def test_two_servers_that_take_each_other_for_the_primary_end_after_one_hop() -> None:
    async def scenario() -> None:
        secret, urls = Secret(), ["", ""]
        async with forwarding(secret, lambda: urls[1]) as first, forwarding(secret, lambda: urls[0]) as second:
            urls[:] = first.url, second.url
            status, fields, _ = await first.ask(POST)
            assert (status, fields["headwater-primary"]) == (421, first.url)
            assert (first.forwarder.counts.requests, second.forwarder.counts.requests) == (1, 0)

    run(scenario)


def test_a_server_that_takes_itself_for_the_primary_ends_after_one_hop() -> None:
    async def scenario() -> None:
        own: list[Replica] = []
        async with forwarding(Secret(), lambda: own[0].url) as replica:
            own.append(replica)
            assert (await replica.ask(POST))[0] == 421
            assert replica.forwarder.counts.requests == 1

    run(scenario)


def test_a_refusal_while_the_body_is_sent_reaches_the_client() -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        fields = [(b"content-length", b"3"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 413, "headers": fields})
        await send({"type": "http.response.body", "body": b"no!"})

    async def scenario() -> None:
        async with pair(refuse) as (replica, url):
            reader, writer = await asyncio.open_connection(*replica.address)
            writer.write(POST + HOST + b"content-length: 50000000\r\n\r\n")
            writer.write(bytes(5_000_000))
            status, fields, body = parsed(await reader.readuntil(b"no!"))
            assert (status, body, fields["connection"]) == (413, b"no!", "close")
            assert fields["headwater-primary"] == url
            writer.close()

    run(scenario)


def test_a_body_that_is_not_wanted_is_not_asked_for() -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"no"})

    async def scenario() -> None:
        expecting = POST + HOST + b"expect: 100-continue\r\nconnection: close\r\ncontent-length: 4\r\n\r\n"
        async with pair(refuse) as (replica, _):
            status, fields, _ = parsed(await exchanged(replica.address, expecting))
            assert status == 401 and "headwater-primary" not in fields
        async with pair(mirror) as (replica, _):
            reader, writer = await asyncio.open_connection(*replica.address)
            writer.write(expecting)
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"body")
            status, _, answer = parsed(await reader.read())
            assert status == 200 and json.loads(answer)["body"] == "body"
            writer.close()

    run(scenario)


@pytest.mark.parametrize(
    "cut",
    [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\npart\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\npart",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart",
        b"HTTP/1.1 200 OK\r\n\r\npart",
    ],
)
def test_a_cut_answer_does_not_look_complete(cut: bytes) -> None:
    async def scenario() -> None:
        script = Script(answering(lambda: script, cut, times=1))
        async with scripted(script) as replica:
            _, fields, body = await replica.ask(POST)
            if "content-length" in fields:
                assert len(body) < int(fields["content-length"])
            else:
                assert not body.endswith(b"0\r\n\r\n")
            assert replica.forwarder.counts.broken_off == 1

    run(scenario)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (b"HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"),
        (b"HEAD", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
        (b"DELETE", b"HTTP/1.1 204 No Content\r\n\r\n"),
        (b"GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n"),
    ],
)
def test_an_answer_without_a_body_ends_with_its_head(method: bytes, answer: bytes) -> None:
    async def scenario() -> None:
        script = Script(answering(lambda: script, answer))
        async with scripted(script) as replica:
            for _ in range(2):
                status, _, body = await replica.ask(method + b" /x HTTP/1.1\r\n")
                assert (status, body) == (int(answer.split()[1]), b"")
        assert (len(script.seen), script.connections) == (2, 1)

    run(scenario)


def test_an_event_comes_at_once_and_a_client_that_leaves_ends_the_stream() -> None:
    left, more = asyncio.Event(), asyncio.Event()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        fields = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        for event in (b"data: 1\n\n", b"data: 2\n\n"):
            await send({"type": "http.response.body", "body": event, "more_body": True})
            await more.wait()
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    async def scenario() -> None:
        async with pair(stream) as (replica, _):
            reader, writer = await asyncio.open_connection(*replica.address)
            writer.write(b"GET /console/live HTTP/1.1\r\n" + HOST + b"\r\n")
            await reader.readuntil(b"data: 1\n\n")
            assert (replica.gate.requests, replica.gate.streams) == (0, 1)
            more.set()
            await reader.readuntil(b"data: 2\n\n")
            writer.close()
            await left.wait()

    run(scenario)


def test_a_client_that_leaves_before_the_answer_ends_its_request() -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def think(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        asked.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    async def scenario() -> None:
        async with pair(think) as (replica, _):
            _, writer = await asyncio.open_connection(*replica.address)
            writer.write(POST + HOST + b"content-length: 4\r\n\r\nbody")
            await asked.wait()
            writer.close()
            await left.wait()
            while replica.forwarder.running:
                await asyncio.sleep(0)
            counts = replica.forwarder.counts
            assert (counts.unknown, counts.broken_off, counts.not_sent) == (0, 0, 0)

    run(scenario)


LOST = struct.pack("!H", 1012) + b"the connection to the primary ended"
"""What a close says then."""


@pytest.mark.parametrize(
    ("sent", "added"),
    [
        (b"\x81\x02hi", b"\x88" + bytes([len(LOST)]) + LOST),
        (b"\x82\x7e\x00\x80" + bytes(128) + b"\x01\x01a", b"\x88" + bytes([len(LOST)]) + LOST),
        (b"\x81\x03hi", b""),  # a close may not come within a frame
        (b"\x82\x7e", b""),
        (b"\x88\x02\x03\xe8", b""),  # the primary has closed
    ],
)
def test_a_websocket_ends_with_its_primary_and_says_so_between_two_frames(sent: bytes, added: bytes) -> None:
    async def scenario() -> None:
        async def accept_and_die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert b"upgrade: websocket" in await script.head(reader)
            upgraded = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            writer.write(upgraded + b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n" + sent)
            await reader.readexactly(1)

        script = Script(accept_and_die)
        async with scripted(script) as replica:
            reader, writer = await asyncio.open_connection(*replica.address)
            upgrade = b"connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
            key = b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            writer.write(b"GET /futoin/orders HTTP/1.1\r\n" + HOST + upgrade + key)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101 ") and script.url.encode() in head
            assert await reader.readexactly(len(sent)) == sent
            assert replica.gate.streams == 1
            writer.write(b"x")
            assert await reader.read() == added
            writer.close()
            while replica.gate.streams:
                await asyncio.sleep(0)

    run(scenario)


def test_a_websocket_that_the_primary_refuses_is_refused_and_its_connection_ends() -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        fields = [(b"content-type", b"text/plain")]
        await send({"type": "websocket.http.response.start", "status": 429, "headers": fields})
        await send({"type": "websocket.http.response.body", "body": b"later"})

    async def scenario() -> None:
        async with pair(refuse) as (replica, _):
            with pytest.raises(InvalidStatus) as refused:
                await connect(replica.url.replace("http", "ws") + "/futoin/a", proxy=None)
            assert (refused.value.response.status_code, refused.value.response.body) == (429, b"later")
            while replica.forwarder._connections._all:
                await asyncio.sleep(0)

    run(scenario)


def test_a_websocket_works_as_without_a_replica() -> None:
    async def echo(scope: Scope, receive: Receive, send: Send) -> None:
        scope[MEMORY].belong(scope[MEMORY].account.owner("known"))  # a stranger may send less
        await receive()
        await send({"type": "websocket.accept", "subprotocol": scope["subprotocols"][0]})
        while (message := await receive())["type"] == "websocket.receive":
            if message.get("text") == "end":
                await send({"type": "websocket.close", "code": 4001, "reason": "as asked"})
            else:
                await send({**message, "type": "websocket.send"})

    async def scenario() -> None:
        async with pair(echo) as (replica, _):
            url = replica.url.replace("http", "ws") + "/futoin/a?b=c"
            async with connect(url, proxy=None, subprotocols=["futoin"], max_size=None) as socket:  # type: ignore[list-item]
                assert socket.subprotocol == "futoin"
                assert socket.protocol.extensions == []  # the primary wants no compression
                large = bytes(range(256)) * 4096 * 8
                await socket.send(large)
                assert await socket.recv() == large
                await socket.send(["frag", "ments"])
                assert await socket.recv() == "fragments"
                await (await socket.ping())
                await socket.send("end")
                with pytest.raises(ConnectionClosed) as closed:
                    await socket.recv()
                assert closed.value.rcvd is not None
                assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "as asked")

    run(scenario)


def test_a_client_that_says_where_it_comes_from_is_not_believed() -> None:
    async def scenario() -> None:
        claims = b"x-forwarded-for: 192.0.2.9\r\nx-forwarded-proto: https\r\nheadwater-peer: https 192.0.2.9\r\n"
        claims += b"headwater-home-secret: guessed\r\n"
        async with pair(mirror) as (replica, url):
            for address in (replica.address, ("127.0.0.1", int(url.rpartition(":")[2]))):
                data = b"GET /x HTTP/1.1\r\n" + HOST + b"connection: close\r\n" + claims + b"\r\n"
                seen = json.loads(parsed(await exchanged(address, data))[2])
                assert (seen["client"][0], seen["scheme"]) == ("127.0.0.1", "http")
                assert "headwater-peer" not in dict(seen["fields"])

    run(scenario)


def test_the_client_of_a_trusted_proxy_is_known_to_the_primary() -> None:
    async def scenario() -> None:
        trusting = Http(trusted_proxies=("127.0.0.1",))
        async with pair(mirror, trusting) as (replica, _):
            head = b"GET /x HTTP/1.1\r\nx-forwarded-for: 198.51.100.7, 192.0.2.9\r\nx-forwarded-proto: https\r\n"
            seen = json.loads((await replica.ask(head))[2])
            assert (seen["client"], seen["scheme"]) == (["192.0.2.9", 0], "https")
            assert [name for name, _ in seen["fields"]] == ["host"]

    run(scenario)


def test_the_target_is_passed_on_as_it_was_written() -> None:
    async def scenario() -> None:
        script = Script(answering(lambda: script, OK))
        async with scripted(script) as replica:
            await replica.ask(b"GET /logs/a%20b/%2F?q=x%26y&q=2&e= HTTP/1.1\r\n")
        assert script.seen[0].startswith(b"get /logs/a%20b/%2f?q=x%26y&q=2&e= http/1.1\r\n")

    run(scenario)
