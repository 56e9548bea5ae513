"""What a producer's body may cost, and what a webhook's answer may."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headwater.cne.delivery.webhook import Outcome, Webhooks
from headwater.cne.notifications import document
from headwater.cne.settings import Settings
from headwater.formats.clients import answer as answers
from headwater.http.outgoing import connection, sockets
from tests import costly_bodies as bodies

from ..http.cost import check_growth
from .builders import bare, text
from .world import V1, V2, World

PATHS = [f"{V1}/create/event", f"{V2}/publishers", f"{V2}/subscriptions", f"{V2}/log"]
BATCH = {"content-type": "application/cloudevents-batch+json"}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", bodies.NOTIFICATIONS)
def test_a_body_costs_no_more_than_its_bytes(run: Any, store: Any, path: str, name: str) -> None:
    body = bodies.NOTIFICATIONS[name]
    world = run(_started(store))
    check_growth(body, lambda given: run(world.ask("POST", path, given)), 16_000)
    assert run(world.ask("POST", path, body(100_000))).status == 400
    run(world.app.close())


def test_a_repeated_member_is_found_in_one_pass() -> None:
    names = [f"m{number}" for number in range(16_000)]

    class Counted(str):
        compared = 0
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    pairs = [(Counted(name), 0) for name in [*names, names[-1]]]
    with pytest.raises(document.InvalidInput, match="'m15999' occurs twice"):
        document._object(pairs)  # type: ignore[arg-type]
    assert Counted.compared < 4 * len(pairs)


def test_a_batch_is_read_event_by_event_and_others_have_their_turn(run: Any, store: Any) -> None:
    async def scenario() -> None:
        world = await _started(store)
        publisher = await world.publisher("/sync/sync-status/sync-state")
        batch = b"[%b]" % b",".join([text(bare(id=publisher))] * 500)
        assert (await world.ask("POST", f"{V1}/create/event", batch, headers=BATCH)).status == 202
        nothing = b"[%b]" % b",".join([b"1"] * 200_000)
        assert (await world.ask("POST", f"{V1}/create/event", nothing, headers=BATCH)).status == 400
        await world.app.close()

    run(scenario())


async def _started(store: Any) -> World:
    world = World(store)
    await world.app.start()
    return world


async def answer_of(serve: Callable[[asyncio.StreamWriter], Awaitable[None]], **options: Any) -> Outcome:
    """What becomes of one POST to an endpoint that answers so."""

    tasks: set[Any] = set()

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await serve(writer)
        writer.close()

    server = await asyncio.start_server(peer, "127.0.0.1", 0)
    webhooks = Webhooks(Settings(timeout_ms=2000), **options)
    webhooks.start()
    try:
        return await webhooks.post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x", b"{}")
    finally:
        await webhooks.close()
        server.close()
        await asyncio.gather(*tasks)


def forever(piece: bytes) -> Callable[[asyncio.StreamWriter], Awaitable[None]]:
    async def serve(writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()

    return serve


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@pytest.mark.parametrize(
    ("opening", "piece", "problem"),
    [
        (b"", CONTINUE, "interim answers"),
        (b"", CONTINUE * 10_000, "interim answers"),
        (b"", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", "interim answers"),
        (b"HTTP/1.1 200 OK\r\n", b"x: " + b"y" * 1000 + b"\r\n", "before the body"),
        (b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 100, ""),
        (b"HTTP/1.1 ", b"2" * 1000, ""),
        (b"HTTP/1.1 200 OK\r\nx: ", b"y" * 1000, ""),
    ],
)
def test_an_answer_without_end_is_ended(run: Any, opening: bytes, piece: bytes, problem: str) -> None:
    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(opening)
        await forever(piece)(writer)

    async def scenario() -> None:
        async with asyncio.timeout(10):
            outcome = await answer_of(serve)
        assert outcome.status == 0
        assert problem in outcome.problem
        assert "no answer within" not in outcome.problem, "it is not for time that it ends"

    run(scenario())


def test_what_is_read_of_interim_answers_is_bounded(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[int] = []
    complete = answers.Answer.on_headers_complete

    def counting(self: Any) -> None:
        heads.append(self._parser.get_status_code())
        complete(self)

    monkeypatch.setattr(answers.Answer, "on_headers_complete", counting)
    run(answer_of(forever(CONTINUE * 5_000)))
    assert 0 < len(heads) <= connection.HEAD_BYTES_MAX // len(CONTINUE) + 1


@pytest.mark.parametrize("interim", range(connection.INTERIM_MAX + 1))
def test_a_few_interim_answers_are_passed_over(run: Any, interim: int) -> None:
    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(CONTINUE * interim + OK)
        await writer.drain()

    assert run(answer_of(serve)).status == 200


def test_a_body_that_comes_with_its_head_is_no_head(run: Any) -> None:
    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n" + bytes(60_000))
        await writer.drain()

    assert run(answer_of(serve)).status == 200


def test_an_endless_body_is_cut_off_and_the_answer_counts(run: Any) -> None:
    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
        await forever(bytes(10_000))(writer)

    assert run(answer_of(serve)).status == 200


def test_a_drip_ends_in_time(run: Any) -> None:
    async def serve(writer: asyncio.StreamWriter) -> None:
        for byte in OK:
            writer.write(bytes([byte]))
            await writer.drain()  # ends this where the other side has closed
            await asyncio.sleep(0.2)

    assert "no answer within" in run(answer_of(serve)).problem


def test_what_comes_unasked_ends_the_connection(run: Any) -> None:
    async def scenario() -> None:
        ended = asyncio.Event()

        async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)
            await asyncio.sleep(0.05)
            with contextlib.suppress(OSError):
                while not writer.is_closing():
                    writer.write(OK)
                    await writer.drain()
                    await asyncio.sleep(0)
            ended.set()

        server = await asyncio.start_server(peer, "127.0.0.1", 0)
        webhooks = Webhooks(Settings())
        webhooks.start()
        assert (await webhooks.post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", b"{}")).status == 200
        async with asyncio.timeout(10):
            await ended.wait()
        await webhooks.close()
        server.close()

    run(scenario())


def test_webhooks_have_a_share_of_sockets_and_waiting_for_one_is_not_the_endpoints_time(run: Any) -> None:
    async def scenario() -> None:
        there = most = 0
        tasks: set[Any] = set()

        async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal there, most
            tasks.add(asyncio.current_task())
            there += 1
            most = max(most, there)
            with contextlib.suppress(asyncio.IncompleteReadError, OSError):
                while True:
                    await reader.readuntil(b"\r\n\r\n")
                    await asyncio.sleep(0.4)
                    writer.write(OK)
            there -= 1
            writer.close()

        servers = [await asyncio.start_server(peer, "127.0.0.1", 0) for _ in range(30)]
        webhooks = Webhooks(Settings(timeout_ms=2000), sockets_max=8)
        webhooks.start()
        uris = [f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x" for server in servers]
        outcomes = await asyncio.gather(*(webhooks.post(uri, b"") for uri in uris * 2))
        await webhooks.close()
        for server in servers:
            server.close()
        await asyncio.gather(*tasks)
        assert [outcome.status for outcome in outcomes] == [200] * 60
        assert most <= 8

    run(scenario())


def test_the_share_is_a_part_of_what_the_process_may_open(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def allowed(files: int) -> int:
        monkeypatch.setattr(sockets.resource, "getrlimit", lambda _: (files, files))
        return sockets.Sockets().allowed

    assert [run(allowed(files)) for files in (64, 1024, sockets.resource.RLIM_INFINITY)] == [32, 256, 262_144]
