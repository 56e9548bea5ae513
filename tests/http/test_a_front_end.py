"""The smallest front end: it copies nothing, and has all that every front end has."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from headwater.core import Event, LogStore, OpenGuard, Right
from headwater.core.access import Guard
from headwater.http import Exchange, FrontEnd, LogHost, Message, Routes
from headwater.http.exchange import as_json
from headwater.server.users.accounts import AccountDirectory
from headwater.server.users.guard import AccountGuard
from headwater.storage.memory import MemoryState, MemoryStore

from .asgi import ask, scope

Host = LogHost[None]


class Notes(FrontEnd[Host, Exchange]):
    """Notes of the logs of one store: `POST /notes/{log}` takes one, at most 100 bytes of text."""

    def __init__(self, store: LogStore, guard: Guard) -> None:
        routes = Routes[Any]()
        routes.add("POST", "/notes/{log}", take, body_bytes_max=100)
        host = LogHost(store, guard, lambda name, log: None)
        super().__init__(host, routes.find, logging.getLogger(__name__), Exchange)


async def take(host: Host, exchange: Exchange) -> None:
    """POST /notes/{log}"""
    opened = await host.log(exchange, Right.APPEND)
    result = await opened.asynchronous.append([Event("Noted", await exchange.body())])
    await exchange.answer(201, as_json({"number": result.last}))


def played(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario)


def code_of(body: bytes) -> str:
    return json.loads(body)["type"].removeprefix("urn:headwater:problem:")


def test_it_appends_and_answers() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        store.create("orders")
        front_end = Notes(store, OpenGuard())
        answer = await ask(front_end, "/notes/orders", "POST", [b"buy ", b"milk"])
        assert (answer.status, answer.body) == (201, b'{"number":1}')
        assert [event.data for event in store.open("orders").read()] == [b"buy milk"]
        await front_end.close()

    played(scenario())


def test_what_does_not_fit_is_answered_with_a_problem() -> None:
    async def scenario() -> None:
        front_end = Notes(MemoryStore(), OpenGuard())
        asked = {
            "route_not_found": ask(front_end, "/letters", "POST"),
            "method_not_allowed": ask(front_end, "/notes/orders"),
            "log_not_found": ask(front_end, "/notes/orders", "POST"),
            "invalid_request": ask(front_end, "/notes/orders", "POST", query=b"colour=red"),
        }
        for code, asking in asked.items():
            answer = await asking
            assert answer.headers[b"content-type"] == b"application/problem+json"
            assert code_of(answer.body) == code
        front_end.stop()
        assert code_of((await ask(front_end, "/notes/orders", "POST")).body) == "stopping"

    played(scenario())


def test_who_may_not_is_refused_before_there_is_such_a_log() -> None:
    async def scenario() -> None:
        guard = AccountGuard(AccountDirectory([], MemoryState()), allows_anybody=False)
        answer = await ask(Notes(MemoryStore(), guard), "/notes/orders", "POST")
        assert (answer.status, code_of(answer.body)) == (401, "unauthenticated")
        assert b"www-authenticate" in answer.headers

    played(scenario())


def test_a_log_that_was_deleted_and_made_again_is_opened_again() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        front_end = Notes(store, OpenGuard())
        for number in (1, 2):
            store.create("orders")
            answer = await ask(front_end, "/notes/orders", "POST")
            assert answer.body == b'{"number":%d}' % number
            store.delete("orders")
        assert (await ask(front_end, "/notes/orders", "POST")).status == 404
        await front_end.close()

    played(scenario())


def test_websockets_are_refused_and_a_server_of_its_own_starts_and_ends_it() -> None:
    async def scenario() -> None:
        front_end = Notes(MemoryStore(), OpenGuard())
        given = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        sent: list[Message] = []

        async def receive() -> Message:
            return given.pop(0)

        async def send(message: Message) -> None:
            sent.append(message)

        await front_end(scope("/notes/orders", type="websocket"), receive, send)
        assert (sent.pop()["type"], given[0]["type"]) == ("websocket.close", "lifespan.startup")
        await front_end({"type": "lifespan"}, receive, send)
        assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert (await ask(front_end, "/notes/orders", "POST")).status == 503

    played(scenario())
