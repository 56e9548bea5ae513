"""One request and its answer: how bodies are read, which parameters pass, what an answer looks like."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headwater.formats.problem import Problem
from headwater.http import Exchange, Message, Receive, Scope, Send
from headwater.http.asgi import WHOLE
from headwater.http.errors import (
    BodyTooLarge,
    CodedBody,
    Disconnected,
    HttpVersionTooOld,
    InvalidParameter,
    UnsupportedMediaType,
)
from headwater.http.exchange import COLLECTED_BYTES_MAX, as_json

from .asgi import Answer, ask, scope

MIB = 1024 * 1024
Handler = Callable[[Exchange], Awaitable[Any]]


def asked(handler: Handler, **more: Any) -> Answer:
    """What the handler answers, whose limit of a body is ten bytes."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send)
        exchange.body_bytes_max = 10
        await handler(exchange)

    return asyncio.run(ask(application, "/", **more))


async def echo(exchange: Exchange) -> None:
    await exchange.answer(200, await exchange.body(), b"text/plain")


@pytest.mark.parametrize("pieces", [[b"0123456789"], [b"01234", b"", b"56789"], [b"0123456789", b""]])
def test_a_body_is_read_to_its_end(pieces: list[bytes]) -> None:
    answer = asked(echo, pieces=pieces, headers=[(b"content-length", b"10"), (b"content-encoding", b"identity")])
    assert (answer.status, answer.body, answer.headers[b"content-length"]) == (200, b"0123456789", b"10")


@pytest.mark.parametrize("pieces", [[b"0123456789x"], [b"01234", b"56789x"], [b"01234", b"56789x", b"never read"]])
def test_a_body_over_the_limit_of_its_route_is_not_read_on(pieces: list[bytes]) -> None:
    with pytest.raises(BodyTooLarge) as error:
        asked(echo, pieces=pieces)
    assert (error.value.given, error.value.allowed) == (11, 10)


def test_a_whole_answer_is_one_message_to_a_server_that_takes_it() -> None:
    async def sent(handler: Handler, method: str, *, whole: bool) -> list[Message]:
        messages: list[Message] = []

        async def send(message: Message) -> None:
            messages.append(message)

        given = scope("/", method) | ({WHOLE: True} if whole else {})
        await handler(Exchange(given, send, send))  # type: ignore[arg-type]
        return messages

    def some(exchange: Exchange) -> Awaitable[None]:
        return exchange.answer(200, b"some", b"text/plain", [(b"a", b"b")])

    def none(exchange: Exchange) -> Awaitable[None]:
        return exchange.answer_empty(303, [(b"a", b"b")])

    def nothing(exchange: Exchange) -> Awaitable[None]:
        return exchange.answer_empty(304, [(b"a", b"b")])

    text, length = (b"content-type", b"text/plain"), (b"content-length", b"4")
    for handler, method, status, fields, body in (
        (some, "GET", 200, [text, length], b"some"),
        (some, "HEAD", 200, [text, length], b""),
        (none, "GET", 303, [(b"content-length", b"0")], b""),
        (nothing, "GET", 304, [], b""),
    ):
        start = {"type": "http.response.start", "status": status, "headers": [*fields, (b"a", b"b")]}
        assert asyncio.run(sent(handler, method, whole=True)) == [{**start, "body": body}]
        both = [start, {"type": "http.response.body", "body": body}]
        assert asyncio.run(sent(handler, method, whole=False)) == both


def test_a_long_body_is_what_came_and_bytes_however_it_came() -> None:
    found = []

    async def keep(exchange: Exchange) -> None:
        exchange.body_bytes_max = 9 * MIB
        found.append(await exchange.body())
        await exchange.answer_empty(204)

    for pieces in ([bytes([number]) * MIB for number in range(9)], [b"a" * 5 * MIB, b"b"], [b"c" * 9 * MIB, b""]):
        assert asked(keep, pieces=pieces).status == 204
        assert found[-1].__class__ is bytes
        assert found[-1] == b"".join(pieces)


def test_a_body_that_will_be_too_long_or_is_compressed_is_not_read_at_all() -> None:
    with pytest.raises(BodyTooLarge):
        asked(echo, pieces=[], headers=[(b"content-length", b"11")])
    with pytest.raises(CodedBody):
        asked(echo, pieces=[], headers=[(b"content-encoding", b"gzip")])
    with pytest.raises(CodedBody):
        asked(echo, pieces=[], headers=[(b"content-encoding", b"identity"), (b"content-encoding", b"gzip")])
    with pytest.raises(CodedBody):  # whichever stands first
        asked(echo, pieces=[], headers=[(b"content-length", b"11"), (b"content-encoding", b"gzip")])


def test_a_client_that_leaves_before_its_body_is_there_is_told_apart() -> None:
    with pytest.raises(Disconnected):
        asked(echo, pieces=[])


def test_json_is_every_media_type_that_says_so_and_none() -> None:
    async def take(exchange: Exchange) -> None:
        await exchange.answer(200, as_json({"length": len(await exchange.json_body())}))

    for media_type in (b"application/json", b"application/cloudevents+json; charset=utf-8"):
        assert asked(take, pieces=[b"{}"], headers=[(b"content-type", media_type)]).body == b'{"length":2}'
    assert asked(take, pieces=[b"{}"]).headers[b"content-type"] == b"application/json"
    with pytest.raises(UnsupportedMediaType):
        asked(take, headers=[(b"content-type", b"text/plain")])


def test_parameters_are_those_that_are_allowed_once_each() -> None:
    async def show(exchange: Exchange) -> None:
        await exchange.answer(200, as_json(exchange.parameters("a", "b")))

    assert asked(show, query=b"a=1&b=").body == b'{"a":"1","b":""}'
    for query in (b"c=1", b"a=1&a=2"):
        with pytest.raises(InvalidParameter):
            asked(show, query=query)


def test_an_empty_answer_has_no_media_type_and_as_204_no_length() -> None:
    assert asked(lambda exchange: exchange.answer_empty(204)).headers == {}
    assert asked(lambda exchange: exchange.answer_empty(404)).headers == {b"content-length": b"0"}


def test_an_answer_that_has_begun_is_broken_off() -> None:
    async def fail(exchange: Exchange) -> None:
        await exchange.start(b"text/plain")
        await exchange.answer_problem(Problem.of_status(503, "no more"))

    with pytest.raises(RuntimeError, match="the answer was interrupted: no more"):
        asked(fail)


def test_certificates_are_what_tls_says_of_them() -> None:
    async def scenario() -> None:
        for extensions, name in [({"tls": {"client_cert_name": "CN=a"}}, "CN=a"), (None, ""), ({"tls": {}}, "")]:
            exchange: Any = Exchange({"extensions": extensions}, None, None)  # type: ignore[arg-type]
            assert exchange.certificate == name

    asyncio.run(scenario())


async def stream(exchange: Exchange) -> None:
    await exchange.start(b"text/plain", [(b"x-head", b"7")])
    for piece in (b"one", b"", b"two"):
        await exchange.send(piece)
    await exchange.finish(b"end")


def test_a_streamed_answer_to_http_1_0_is_whole_and_says_its_length() -> None:
    newer, older = asked(stream), asked(stream, version="1.0")
    assert (older.status, older.body, older.headers[b"x-head"]) == (200, b"onetwoend", b"7")
    assert older.headers == {**newer.headers, b"content-length": b"9"}
    assert newer.body == older.body and b"content-length" not in newer.headers


def test_the_head_alone_of_a_streamed_answer_to_http_1_0_comes_at_once() -> None:
    with pytest.raises(Disconnected):
        asked(stream, version="1.0", method="HEAD")


def test_an_error_in_the_middle_of_an_answer_to_http_1_0_is_the_answer() -> None:
    async def fail(exchange: Exchange) -> None:
        await exchange.start(b"text/plain")
        await exchange.send(b"one")
        await exchange.answer_problem(Problem.of_status(500, "damaged"))

    answer = asked(fail, version="1.0")
    assert (answer.status, answer.headers[b"content-type"]) == (500, b"application/problem+json")
    assert b"damaged" in answer.body and b"one" not in answer.body
    with pytest.raises(RuntimeError, match="was interrupted: damaged"):
        asked(fail)


@pytest.mark.parametrize(("size", "is_whole"), [(COLLECTED_BYTES_MAX, True), (COLLECTED_BYTES_MAX + 1, False)])
def test_an_answer_to_http_1_0_is_whole_up_to_a_size_and_refused_beyond(size: int, *, is_whole: bool) -> None:
    async def long(exchange: Exchange) -> None:
        await exchange.start(b"text/plain")
        await exchange.send(bytes(MIB))
        await exchange.finish(bytes(size - MIB))

    if is_whole:
        assert len(asked(long, version="1.0").body) == size
    else:
        with pytest.raises(HttpVersionTooOld, match=r"proxy_http_version 1\.1"):
            asked(long, version="1.0")
    assert len(asked(long).body) == size
