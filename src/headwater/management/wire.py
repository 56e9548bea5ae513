"""Management requests and answers over HTTP: JSON, and problems (RFC 9457)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ..core.limits import show
from ..formats import jsontext
from ..formats.budget import values
from ..formats.problem import Problem
from ..http import Exchange
from ..http.errors import InvalidParameter
from ..http.exchange import whole_number
from .entities import TYPES, EntityType
from .operations import Answer
from .statuses import OperationRefused, Status

BODY_BYTES_MAX = 64 * 1024
"""The limit of every request body, the same as for a message to `$management`."""
VALUES_MAX = 4096
"""The maximum number of values in one body: more than any valid body has."""
QUERY_PARAMETERS = ("attributes", "offset", "count", "filter")
ROWS_AT_ONCE = 64
"""Rows of a QUERY encoded in one step."""


def _plain(value: object) -> object:
    """A time, or a protocol's own number or text type, as a plain value."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} is not a valid attribute value")


encode = msgspec.json.Encoder(enc_hook=_plain).encode
_object = msgspec.json.Decoder(dict[str, Any])


async def given_object(exchange: Exchange) -> dict[str, Any]:
    """The JSON object in the body; empty if there is no body. Raises the same errors as `json_body`, and
    InvalidInput.
    """
    body = await exchange.json_body("application/json", "application/merge-patch+json")
    if not body:
        return {}
    values.check_values(body, VALUES_MAX)
    return jsontext.decode(_object, body)


def query_of(exchange: Exchange, type: EntityType) -> tuple[dict[str, object], dict[str, object]]:
    """The properties and the body of a QUERY, from query parameters. Raises InvalidParameter."""
    given = exchange.parameters(*QUERY_PARAMETERS)
    numbers = {name: whole_number(given, name) for name in ("offset", "count")}
    names = given.get("attributes")
    body: dict[str, object] = {"attributeNames": names.split(",")} if names else {}
    return {"entityType": type.name, "filter": given.get("filter"), **numbers}, body


def types_of(exchange: Exchange) -> tuple[frozenset[str] | None, int | None]:
    """The requested entity types, if any, and the maximum number of entities of each. Raises InvalidParameter."""
    given = exchange.parameters("types", "count")
    count = whole_number(given, "count")
    if "types" not in given:
        if count is not None:
            raise InvalidParameter("count", "applies only to entities; specify their types too")
        return None, None
    by_word = {**{each.word: name for name, each in TYPES.items()}, **dict.fromkeys(TYPES)}
    words = given["types"].split(",")
    if len(words) > len(TYPES):
        raise InvalidParameter("types", f"expected at most {len(TYPES)} types, got {len(words)}")
    for word in words:
        if word not in by_word:
            raise InvalidParameter("types", f"there is no type {show(word)}; the types are {', '.join(TYPES)}")
    return frozenset(by_word[word] or word for word in words), count


def described(types: list[EntityType]) -> dict[str, object]:
    """The types, with their GET-OPERATIONS and GET-ATTRIBUTES answers."""
    return {
        "types": {
            each.name: {"operations": dict(each.operations), "attributes": each.attribute_names} for each in types
        }
    }


def pieces_of(answer: Answer) -> Iterator[bytes]:
    """The answer to a QUERY, in pieces that each take well below 1 ms."""
    assert isinstance(answer.body, dict)
    total = b"" if answer.total is None else b',"total":%d' % answer.total
    names, rows = answer.body["attributeNames"], answer.body["results"]
    yield b'{"attributeNames":' + encode(names) + b',"count":%d%b,"results":[' % (len(rows), total)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        piece = encode(rows[start : start + ROWS_AT_ONCE])[1:-1]
        yield b"," + piece if start else piece
    yield b"]}"


def pieces_of_types(found: Mapping[str, Answer]) -> Iterator[bytes]:
    """The answers to a QUERY of each type, in such pieces."""
    yield b'{"entities":{'
    for index, (name, answer) in enumerate(found.items()):
        yield (b"," if index else b"") + encode(name) + b":"
        yield from pieces_of(answer)
    yield b"}}"


def problem_of(refusal: OperationRefused) -> Problem:
    """The problem document of a refused operation."""
    status, code, title = _PROBLEMS[refusal.status]
    return Problem(status, code, title, refusal.description)


_PROBLEMS: Mapping[Status, tuple[int, str, str]] = {
    Status.BAD_REQUEST: (400, "invalid_request", "Invalid request"),
    Status.NOT_FOUND: (404, "entity_not_found", "No such entity"),
    Status.CONFLICT: (409, "conflict", "Conflict with the current state"),
    Status.NOT_IMPLEMENTED: (404, "operation_not_found", "No such operation"),
}
"""Problems of management's own refusals; errors of the core have the same problems everywhere.

Over HTTP the path contains the operation, so an unknown one is not a server error (501).
"""
