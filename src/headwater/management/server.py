"""Management over HTTP: the operations of a management node, by method and path.

| request | operation |
| --- | --- |
| `GET /management` | GET-OPERATIONS and GET-ATTRIBUTES, of all types |
| `GET /management?types=...` | QUERY, for each of some types |
| `GET /management/{type}` | QUERY |
| `GET /management/{type}/{name}` | READ |
| `PUT`, `PATCH`, `DELETE` of the same | CREATE, UPDATE, DELETE |
| `POST /management/{type}/{name}/{operation}` | any other |
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from ..core.access import Guard, User
from ..core.loop.slices import Slices
from ..http import Exchange, FrontEnd, Header, Host, Routes
from ..http.errors import Disconnected, InvalidParameter, MethodNotAllowed
from ..http.exchange import as_json, whole_number
from ..http.front_end import Handler
from . import wire
from .entities import CREATE, DELETE, DROPS_AT_MOST, READ, UPDATE, EntityType
from .operations import OF_ENTITIES, RESULTS_MAX, Answer, Management, Request
from .statuses import OperationRefused, Status

Result = TypeVar("Result")

_METHODS = {"GET": READ, "HEAD": READ, "PUT": CREATE, "PATCH": UPDATE, "DELETE": DELETE}
_NO_STORE: Header = (b"cache-control", b"no-store")
_logger = logging.getLogger("headwater.management")


class ManagementHost(Host):
    """The guard, and the management node that AMQP clients use too."""

    def __init__(self, management: Management, guard: Guard) -> None:
        super().__init__(guard)
        self.management = management


class Application(FrontEnd[ManagementHost, Exchange]):
    """Management over HTTP, on one event loop. See FrontEnd."""

    def __init__(self, management: Management, guard: Guard) -> None:
        """`guard` authenticates; the entities of `management` check permissions."""
        self.routes: Routes[Handler[ManagementHost, Exchange]] = Routes()
        for method, path, handler in _TABLE:
            has_parameters = handler in (list_types, query, of_entity)
            self.routes.add(method, path, handler, body_bytes_max=wire.BODY_BYTES_MAX, has_parameters=has_parameters)
        super().__init__(ManagementHost(management, guard), self.routes.find, _logger, Exchange)

    async def refuse(self, exchange: Exchange, error: Exception) -> None:
        if isinstance(error, OperationRefused):
            await exchange.answer_problem(wire.problem_of(error))
        else:
            await super().refuse(exchange, error)


async def list_types(host: ManagementHost, exchange: Exchange) -> None:
    """GET /management"""
    user = await host.user(exchange)
    asked, count = wire.types_of(exchange)
    if asked is None:
        await exchange.answer(200, as_json(wire.described(host.management.types)))
        return
    served = [type for type in host.management.types if type.name in asked]
    found = await _while_there(exchange, _query_all(host.management, user, served, count))
    await exchange.start(b"application/json", [_NO_STORE])
    slices = Slices()
    for piece in wire.pieces_of_types(found):
        await exchange.send(piece)
        await slices.pause()
    await exchange.finish()


async def query(host: ManagementHost, exchange: Exchange) -> None:
    """GET /management/{type}"""
    user = await host.user(exchange)
    properties, body = wire.query_of(exchange, host.management.type(exchange.arguments[0]))
    asked = host.management.do(Request(user, {"operation": "QUERY", **properties}, body))
    await _answer(exchange, await _while_there(exchange, asked))


async def _query_all(
    management: Management, user: User, types: Sequence[EntityType], count: int | None
) -> dict[str, Answer]:
    """The answer to a QUERY of each type. Raises OperationRefused if the total exceeds the limit of one QUERY."""
    found, results = dict[str, Answer](), 0
    for type in types:
        about = {"operation": "QUERY", "entityType": type.name, "count": count}
        found[type.name] = await management.do(Request(user, about, {}))
        results += found[type.name].count or 0
        if results > RESULTS_MAX:
            problem = f"there are more than {RESULTS_MAX} results; request fewer of each with count, or fewer types"
            raise OperationRefused(Status.BAD_REQUEST, problem)
    return found


async def of_entity(host: ManagementHost, exchange: Exchange) -> None:
    """GET, PUT, PATCH and DELETE /management/{type}/{name}"""
    user = await host.user(exchange)
    type, name = _addressed(host, exchange)
    operation = _METHODS[exchange.scope["method"]]
    if operation not in type.operations:
        able = {method for method, each in _METHODS.items() if each in type.operations}
        raise MethodNotAllowed(exchange.scope["method"], able)
    drops = whole_number(exchange.parameters(*type.operations[operation]), DROPS_AT_MOST)
    body = await wire.given_object(exchange) if operation in (CREATE, UPDATE) else None
    about = {"operation": operation, "type": type.name, "name": name, DROPS_AT_MOST: drops}
    await _answer(exchange, await host.management.do(Request(user, about, body)))


async def perform(host: ManagementHost, exchange: Exchange) -> None:
    """POST /management/{type}/{name}/{operation}"""
    user = await host.user(exchange)
    type, name = _addressed(host, exchange)
    operation = exchange.arguments[2]
    if operation in OF_ENTITIES:
        method = next(method for method, each in _METHODS.items() if each == operation)
        raise InvalidParameter("operation", f"for {operation}, send {method} to the entity itself")
    answer = await host.management.do(_request(user, operation, type, name, await wire.given_object(exchange)))
    await _answer(exchange, answer)


def _request(user: User, operation: str, type: EntityType, name: str, given: dict[str, Any]) -> Request:
    """The request for an operation other than an entity's four; its arguments are members of the body.

    Raises InvalidParameter for an unknown argument.
    """
    arguments = type.operations.get(operation, ())
    body = {key: given[key] for key in given if key == "attributeNames" and operation == "QUERY"}
    for key in given:
        if operation in type.operations and key not in (*arguments, *body):
            raise InvalidParameter("body", f"{operation} has no such argument", key)
    properties = {key: given[key] for key in arguments if key in given}
    return Request(user, {**properties, "operation": operation, "type": type.name, "name": name}, body)


def _addressed(host: ManagementHost, exchange: Exchange) -> tuple[EntityType, str]:
    return host.management.type(exchange.arguments[0]), exchange.arguments[1]


async def _while_there(exchange: Exchange, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of read-only work that may take long under load; it is cancelled when the client disconnects.

    Raises Disconnected, and the errors of the work.
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
    """Send the result of an operation. Long results are sent in pieces, so that other tasks can run in between."""
    if answer.count is None:
        if answer.status == 204:
            await exchange.answer_empty(204)
        else:
            await exchange.answer(answer.status, wire.encode(answer.body), headers=(_NO_STORE,))
        return
    slices = Slices()
    await exchange.start(b"application/json", [_NO_STORE])
    for piece in wire.pieces_of(answer):
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
