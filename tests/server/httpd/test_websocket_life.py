"""How a WebSocket begins and ends: who may close it, what each side is told, and that it does end."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from websockets.frames import Opcode

from headwater.http.asgi import MEMORY
from headwater.server.config.settings import Http
from headwater.server.httpd import websocket
from headwater.server.httpd.server import HttpServer
from headwater.server.httpd.websocket_cycle import Left

from ..running import SILENCE_S_MAX
from ..websocket_wire import Peer, Scripted, closing, frame, opened, sent
from .test_websocket import UPGRADE

PEERS_CLOSE = frame(Opcode.CLOSE, b"\x03\xe9gone")


async def asked() -> tuple[Scripted, Peer]:
    """A WebSocket that is not answered yet."""
    application = Scripted()
    peer = Peer(application)
    await application.begun.wait()
    assert await application.received() == {"type": "websocket.connect"}
    return application, peer


async def aborted(peer: Peer) -> None:
    """Wait until its connection is dropped."""
    while not peer.wire.is_aborted:
        await asyncio.sleep(0.001)


# how it begins


def test_what_a_request_says_is_in_the_scope() -> None:
    async def scenario() -> None:
        fields = [(b"sec-websocket-protocol", b"a, b"), (b"sec-websocket-protocol", b"c"), (b"cookie", b"\xe9")]
        application = Scripted()
        peer = Peer(application, *fields)
        await application.begun.wait()
        scope = application.scope
        assert scope["type"] == "websocket" and scope["scheme"] == "ws" and scope["path"] == "/futoin/orders"
        assert scope["subprotocols"] == ["a", "b", "c"] and (b"cookie", b"\xe9") in scope["headers"]
        assert set(scope["extensions"]) == {"websocket.http.response"} and MEMORY in scope
        await application.end()
        await peer.leave()

    asyncio.run(scenario())


def test_the_application_chooses_the_protocol_and_no_message_is_compressed() -> None:
    async def scenario() -> None:
        offered = (b"sec-websocket-extensions", b"permessage-deflate; client_max_window_bits")
        accepts = {"subprotocol": "b", "headers": [(b"x-one", b"1"), (b"x-one", b"2")]}
        application, peer, head = await opened(offered, (b"sec-websocket-protocol", b"a, b"), accepts=accepts)
        lines = head.lower().split(b"\r\n")
        assert lines[0] == b"http/1.1 101 switching protocols"
        assert b"sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=" in lines
        assert b"sec-websocket-protocol: b" in lines and {b"x-one: 1", b"x-one: 2"} <= set(lines)
        assert not [line for line in lines if line.startswith(b"sec-websocket-extensions")]
        assert len([line for line in lines if line.startswith(b"date: ")]) == 1
        await application.end()
        await peer.leave()

    asyncio.run(scenario())


def test_what_comes_before_the_answer_waits_for_it() -> None:
    async def scenario() -> None:
        application, peer = await asked()
        await peer.says(frame(Opcode.PING, b"early"), frame(Opcode.BINARY, b"begin", fin=False))
        assert not peer.wire.is_reading and peer.written == b"", "a pong is no answer to the request"
        await peer.says(frame(Opcode.CONT, b" and end"))
        await application.send("accept")
        assert peer.take().startswith(b"HTTP/1.1 101 ")
        await peer.is_read()
        assert await application.received() == {"type": "websocket.receive", "bytes": b"begin and end"}
        assert peer.take() == sent(Opcode.PONG, b"early") and peer.wire.is_reading
        await application.end()
        await peer.leave()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (UPGRADE.replace(b"host: x", b"host: x\r\ncookie: " + b"c" * 9000), (b"431", b"400")),
        (UPGRADE.replace(b"host: x", b"host: x" + b"\r\nx: y" * 200), (b"431", b"400")),
        (UPGRADE.replace(b"orders", b"o" * 9000), (b"414", b"400")),
        (UPGRADE.replace(b"orders", b"\xc3\xa9"), (b"400",)),
        (UPGRADE.replace(b"host: x", b"host: x\r\ncontent-length: 4") + b"body", (b"400",)),
        (UPGRADE.replace(b"GET", b"POST"), (b"405", b"400")),
        (UPGRADE.replace(b": 13", b": 12"), (b"400",)),
        (UPGRADE.replace(b"dGhl", b""), (b"400",)),
        (UPGRADE.replace(b"sec-websocket-key", b"x"), (b"400",)),
    ],
    ids=["cookie", "fields", "target", "no ASCII", "body", "method", "version", "short key", "no key"],
)
def test_a_request_that_is_none_of_a_websocket_is_answered_and_its_connection_closed(
    head: bytes, status: tuple[bytes, ...]
) -> None:
    async def scenario() -> None:
        bound = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(Scripted(), [bound], Http(), None)
        await server.start()
        reader, writer = await asyncio.open_connection(*bound.getsockname())
        writer.write(head)
        async with asyncio.timeout(SILENCE_S_MAX):
            answer = await reader.read()
        writer.close()
        await server.stop()
        assert answer.split(b" ")[1] in status, answer

    asyncio.run(scenario())


def test_it_may_be_refused_by_an_answer_of_http() -> None:
    async def scenario() -> None:
        application, peer = await asked()
        await application.send("http.response.start", status=421, headers=[(b"content-type", b"a/b")])
        await application.send("http.response.body", body=b"not ", more_body=True)
        await application.send("http.response.body", body=b"here")
        head, _, body = peer.take().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 421 ") and body == b"not here" and peer.wire.is_closed
        assert b"content-type: a/b" in head.lower() and b"content-length: 8" in head.lower()
        assert (await application.received())["code"] == 1006
        await application.end()
        await peer.leave()

    asyncio.run(scenario())


def test_a_header_field_is_one_line() -> None:
    async def scenario() -> None:
        application, peer = await asked()
        for value in (b"a\r\nset-cookie: b", b"a\nb", b"a\0"):
            with pytest.raises(RuntimeError, match="invalid header field"):
                await application.send("accept", headers=[(b"x", value)])
        assert peer.written == b""
        await application.end()
        await peer.leave()

    asyncio.run(scenario())


# how it ends


def test_messages_that_came_before_the_close_are_received_before_it_and_the_close_again_and_again() -> None:
    async def scenario() -> None:
        application, peer, _ = await opened()
        await peer.says(frame(Opcode.TEXT, b"first"), frame(Opcode.BINARY, b"second"), PEERS_CLOSE)
        assert (await application.received())["text"] == "first"
        assert (await application.received())["bytes"] == b"second"
        for _ in range(3):
            assert await application.received() == {"type": "websocket.disconnect", "code": 1001, "reason": "gone"}
        assert peer.take() == closing(1001, "gone") and peer.wire.is_closed
        await application.end()
        await peer.leave()

    asyncio.run(scenario())


def test_what_is_sent_when_the_peer_has_left_raises_oserror() -> None:
    async def scenario() -> None:
        for leaves in ("closes", "breaks the protocol", "is lost"):
            application, peer, _ = await opened()
            if leaves == "is lost":
                await application.send("send", text="before")
                peer.protocol.connection_lost(ConnectionResetError())
            else:
                await peer.says(PEERS_CLOSE if leaves == "closes" else b"\xff" * 20)
            for _ in range(2):
                with pytest.raises(OSError, match="has disconnected"):
                    await application.send("send", bytes=b"behind")
            await application.end(Left())
            if leaves != "is lost":
                await peer.leave()

    asyncio.run(scenario())


def test_one_whose_peer_broke_the_protocol_holds_nothing_while_the_peer_may_read_why() -> None:
    async def scenario() -> None:
        application, peer, _ = await opened()
        await peer.says(b"\xff" * 20)
        await asyncio.sleep(0)
        assert len(peer.state.lingering) == 1 and not peer.state.connections
        assert peer.take().startswith(b"\x88") and peer.wire.is_reading and not peer.wire.is_closed
        await application.end()
        await peer.leave()

    asyncio.run(scenario())


def test_what_the_application_sends_out_of_order_is_its_mistake() -> None:
    async def scenario() -> None:
        application, peer = await asked()
        with pytest.raises(RuntimeError, match=r"expected websocket\.accept.*, got "):
            await application.send("send", text="early")
        with pytest.raises(RuntimeError, match="101 is not the status"):
            await application.send("http.response.start", status=101)
        await application.send("accept")
        with pytest.raises(RuntimeError, match=r"expected websocket\.send or websocket\.close"):
            await application.send("accept")
        await application.send("close")
        with pytest.raises(RuntimeError, match="the application closed"):
            await application.send("send", text="late")
        await application.end()
        await peer.leave()

    asyncio.run(scenario())


def test_a_close_of_the_application_waits_for_that_of_the_peer_and_takes_no_messages_meanwhile() -> None:
    async def scenario() -> None:
        application, peer, _ = await opened()
        await application.send("close", code=4000, reason="é" * 100)
        assert peer.take() == closing(4000, "é" * 61), "a reason has 123 bytes at most"
        await peer.says(frame(Opcode.BINARY, b"late"), frame(Opcode.PING, b"alive"))
        assert peer.take() == sent(Opcode.PONG, b"alive") and not peer.wire.is_closed
        assert (await application.received())["code"] == 4000
        await peer.says(frame(Opcode.CLOSE, b"\x0f\xa0"))
        assert peer.wire.is_closed and not peer.wire.is_aborted and peer.take() == b""
        await application.end()
        await peer.leave()

    asyncio.run(scenario())


@pytest.mark.parametrize("answers", ["nothing", "a close, and reads nothing"])
def test_who_does_not_see_to_the_end_is_dropped(monkeypatch: pytest.MonkeyPatch, answers: str) -> None:
    monkeypatch.setattr(websocket, "CLOSE_S", 0.01)

    async def scenario() -> None:
        application, peer, _ = await opened()
        if answers == "nothing":
            await application.send("close")
        else:
            peer.protocol.pause_writing()
            await peer.says(PEERS_CLOSE)
            assert peer.wire.is_closed and not peer.wire.is_aborted
        await aborted(peer)
        await application.end()
        await peer.leave()

    asyncio.run(scenario())


@pytest.mark.parametrize(("error", "code"), [(None, 1000), (ValueError("failed"), 1011)])
def test_an_application_that_ends_closes_it(
    error: Exception | None, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        application, peer, _ = await opened()
        await application.end(error)
        assert peer.take() == closing(code)
        await peer.leave()

    asyncio.run(scenario())
    assert ("the application failed" in caplog.text) == (error is not None)


@pytest.mark.parametrize("error", [None, ValueError("failed")])
def test_an_application_that_ends_without_an_answer_is_answered_for(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        application, peer = await asked()
        await application.end(error)
        assert peer.take().startswith(b"HTTP/1.1 500 ") and peer.wire.is_closed
        await peer.leave()

    asyncio.run(scenario())
    assert "the application" in caplog.text


def test_who_waits_until_the_peer_reads_gets_to_know_that_it_left() -> None:
    async def scenario() -> None:
        application, peer, _ = await opened()
        peer.protocol.pause_writing()
        sending = [asyncio.create_task(application.send("send", bytes=b"x")) for _ in range(2)]
        await asyncio.sleep(0)
        assert peer.take() == b""
        peer.protocol.connection_lost(None)
        assert {type(each) for each in await asyncio.gather(*sending, return_exceptions=True)} == {Left}
        await application.end()

    asyncio.run(scenario())


# when the server stops


def test_a_stopping_server_says_that_it_will_be_back() -> None:
    async def scenario() -> None:
        application, peer, _ = await opened()
        peer.protocol.shutdown()
        assert peer.take() == closing(1012) and peer.wire.is_closed
        assert (await application.received())["code"] == 1012
        await application.end()
        await peer.leave()

    asyncio.run(scenario())


def test_a_stopping_server_answers_who_still_waits_for_its_websocket() -> None:
    async def scenario() -> None:
        application, peer = await asked()
        peer.protocol.shutdown()
        assert peer.take().startswith(b"HTTP/1.1 503 ") and peer.wire.is_closed
        assert (await application.received())["code"] == 1006
        with pytest.raises(OSError, match="has disconnected"):
            await application.send("accept")
        await application.end()
        await peer.leave()

    asyncio.run(scenario())


@pytest.mark.parametrize("by", ["the peer", "the application", "an error"])
def test_a_stopping_server_says_nothing_where_all_is_said(by: str) -> None:
    async def scenario() -> None:
        application, peer, _ = await opened()
        if by == "the application":
            await application.send("close")
        else:
            await peer.says(PEERS_CLOSE if by == "the peer" else b"\xff" * 20)
        peer.take()
        peer.protocol.shutdown()
        assert peer.take() == b"" and peer.wire.is_closed
        await application.end()
        await peer.leave()

    asyncio.run(scenario())


# whether the peer is there


def test_only_the_answer_to_its_ping_keeps_a_peer() -> None:
    async def scenario() -> None:
        application, peer, _ = await opened()
        peer.protocol._lose_patience()
        ping = peer.take()
        assert ping[:2] == b"\x89\x04"
        await peer.says(frame(Opcode.PONG, ping[2:]))
        peer.protocol._lose_patience()
        another = peer.take()
        assert another[:2] == b"\x89\x04" and another != ping
        await peer.says(frame(Opcode.PONG, ping[2:]), frame(Opcode.PONG, b""), frame(Opcode.BINARY, b"alive"))
        peer.protocol._lose_patience()
        assert peer.take() == closing(1011, "no pong was received in time") and peer.wire.is_aborted
        assert (await application.received())["bytes"] == b"alive"
        await application.end()
        await peer.leave()

    asyncio.run(scenario())


@pytest.mark.parametrize("takes_what_it_is_sent", [True, False])
def test_a_peer_whose_answer_to_a_ping_is_not_read_is_cut_off_only_if_it_does_not_read(
    takes_what_it_is_sent: bool,
) -> None:
    async def scenario() -> None:
        application, peer, _ = await opened()
        most = websocket.MESSAGES_WAITING_MAX
        await peer.says(*(frame(Opcode.BINARY, b"x") for _ in range(most)))
        assert not peer.wire.is_reading
        peer.protocol._lose_patience()
        ping = peer.take()
        if not takes_what_it_is_sent:
            peer.protocol.pause_writing()
        peer.protocol._lose_patience()
        assert peer.wire.is_aborted is not takes_what_it_is_sent
        if takes_what_it_is_sent:
            for _ in range(most):
                await application.received()
            await peer.says(frame(Opcode.PONG, ping[2:]))
            peer.protocol._lose_patience()
            assert peer.take()[:2] == b"\x89\x04" and not peer.wire.is_aborted, "the next ping"
        await application.end()
        await peer.leave()

    asyncio.run(scenario())


def test_reading_stops_where_the_application_takes_nothing_and_goes_on_where_it_does() -> None:
    async def scenario() -> None:
        application, peer, _ = await opened()
        most = websocket.MESSAGES_WAITING_MAX
        await peer.says(*(frame(Opcode.BINARY, b"x") for _ in range(most - 1)))
        assert peer.wire.is_reading
        await peer.says(frame(Opcode.BINARY, b"x"))
        assert not peer.wire.is_reading
        taken: list[Any] = [await application.received() for _ in range(most)]
        assert len(taken) == most and peer.wire.is_reading
        await application.end()
        await peer.leave()

    asyncio.run(scenario())
