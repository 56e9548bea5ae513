"""Management over HTTP: the operations of a management node, by method and path.

| request | operation |
| --- | --- |
| `GET /management` | GET-OPERATIONS and GET-ATTRIBUTES, of all types |
| `GET /management/{type}` | QUERY |
| `GET /management/{type}/{name}` | READ |
| `PUT`, `PATCH`, `DELETE` of the same | CREATE, UPDATE, DELETE |
| `POST /management/{type}/{name}/{operation}` | any other |
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from ..core.access import Guard, User
from ..core.slices import Slices
from ..http import Exchange, FrontEnd, Header, Host, Routes
from ..http.errors import Disconnected, InvalidParameter, MethodNotAllowed
from ..http.front_end import Handler
from .entities import CREATE, DELETE, READ, UPDATE, EntityType
from .operations import OF_ENTITIES, Answer, Management, Request
from .statuses import Refusal
from .wire import BODY_BYTES_MAX, described, encode, given_object, pieces_of, problem_of, query_of

_METHODS = {"GET": READ, "HEAD": READ, "PUT": CREATE, "PATCH": UPDATE, "DELETE": DELETE}
_NO_STORE: Header = (b"cache-control", b"no-store")
_logger = logging.getLogger("headwater.management")


class ManagementHost(Host):
    """The guard, and the management node that AMQP clients ask, too."""

    def __init__(self, management: Management, guard: Guard) -> None:
        super().__init__(guard)
        self.management = management


class Application(FrontEnd[ManagementHost, Exchange]):
    """Management over HTTP, on one event loop. See FrontEnd."""

    def __init__(self, management: Management, guard: Guard) -> None:
        """`guard` says who asks; who may do what is for the entities of `management` to say."""
        self.routes: Routes[Handler[ManagementHost, Exchange]] = Routes()
        for method, path, handler in _TABLE:
            has_parameters = handler is query
            self.routes.add(method, path, handler, body_bytes_max=BODY_BYTES_MAX, has_parameters=has_parameters)
        super().__init__(ManagementHost(management, guard), self.routes.find, _logger, Exchange)

    async def refuse(self, exchange: Exchange, error: Exception) -> None:
        """See FrontEnd."""
        if isinstance(error, Refusal):
            await exchange.answer_problem(problem_of(error))
        else:
            await super().refuse(exchange, error)


async def list_types(host: ManagementHost, exchange: Exchange) -> None:
    """GET /management"""
    await host.user(exchange)
    await exchange.answer_json(200, described(host.management.types))


async def query(host: ManagementHost, exchange: Exchange) -> None:
    """GET /management/{type}"""
    user = await host.user(exchange)
    properties, body = query_of(exchange, host.management.type(exchange.arguments[0]))
    asked = host.management.do(Request(user, {"operation": "QUERY", **properties}, body))
    await _answer(exchange, await _while_there(exchange, asked))


async def of_entity(host: ManagementHost, exchange: Exchange) -> None:
    """GET, PUT, PATCH and DELETE /management/{type}/{name}"""
    user = await host.user(exchange)
    type, name = _addressed(host, exchange)
    operation = _METHODS[exchange.scope["method"]]
    if operation not in type.operations:
        able = {method for method, each in _METHODS.items() if each in type.operations}
        raise MethodNotAllowed(exchange.scope["method"], able)
    body = await given_object(exchange) if operation in (CREATE, UPDATE) else None
    about = {"operation": operation, "type": type.name, "name": name}
    await _answer(exchange, await host.management.do(Request(user, about, body)))


async def perform(host: ManagementHost, exchange: Exchange) -> None:
    """POST /management/{type}/{name}/{operation}"""
    user = await host.user(exchange)
    type, name = _addressed(host, exchange)
    operation = exchange.arguments[2]
    if operation in OF_ENTITIES:
        method = next(method for method, each in _METHODS.items() if each == operation)
        raise InvalidParameter("operation", f"{operation} is {method} of the entity itself")
    answer = await host.management.do(_request(user, operation, type, name, await given_object(exchange)))
    await _answer(exchange, answer)


def _request(user: User, operation: str, type: EntityType, name: str, given: dict[str, Any]) -> Request:
    """The request for an operation that is none of an entity's four: its arguments are members of the body.

    Raises InvalidParameter for one that it does not have.
    """
    arguments = type.operations.get(operation, ())
    body = {key: given[key] for key in given if key == "attributeNames" and operation == "QUERY"}
    for key in given:
        if operation in type.operations and key not in (*arguments, *body):
            raise InvalidParameter("body", f"{operation} has no argument of that name", key)
    properties = {key: given[key] for key in arguments if key in given}
    return Request(user, {**properties, "operation": operation, "type": type.name, "name": name}, body)


def _addressed(host: ManagementHost, exchange: Exchange) -> tuple[EntityType, str]:
    return host.management.type(exchange.arguments[0]), exchange.arguments[1]


async def _while_there(exchange: Exchange, work: Coroutine[Any, Any, Answer]) -> Answer:
    """The answer of work that changes nothing, and takes long where many ask; it ends when the client has gone.

    Raises Disconnected, and what the work raises.
    """
    asked, gone = asyncio.ensure_future(work), asyncio.ensure_future(exchange.disconnected())
    try:
        await asyncio.wait((asked, gone), return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            raise Disconnected
        return asked.result()
    finally:
        asked.cancel()
        gone.cancel()


async def _answer(exchange: Exchange, answer: Answer) -> None:
    """Answer what became of an operation; long results in pieces, with others' turns between."""
    if answer.count is None:
        if answer.status == 204:
            await exchange.answer_empty(204)
        else:
            await exchange.answer(answer.status, encode(answer.body), headers=(_NO_STORE,))
        return
    slices = Slices()
    assert isinstance(answer.body, dict)
    await exchange.start(b"application/json", [_NO_STORE])
    for piece in pieces_of(answer.body, answer.count):
        await exchange.send(piece)
        await slices.pause()
    await exchange.finish()


_ENTITY = "/management/{type}/{name}"
_TABLE: list[tuple[str, str, Handler[ManagementHost, Exchange]]] = [
    ("GET", "/management", list_types),
    ("GET", "/management/{type}", query),
    ("GET", _ENTITY, of_entity),
    ("PUT", _ENTITY, of_entity),
    ("PATCH", _ENTITY, of_entity),
    ("DELETE", _ENTITY, of_entity),
    ("POST", f"{_ENTITY}/{{operation}}", perform),
]
