"""Management of a server over HTTP: entities by type and name (`docs/reference/management.md`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from ...formats.clients.answer import Answer
from ..protocol import wire
from ..protocol.request import Request, Route
from ..protocol.routes import dropping
from .transport import Transport


class Found(NamedTuple):
    """The answer to a query."""

    names: Sequence[str]
    """The attributes, in the order of each row's values."""
    rows: Sequence[Sequence[Any]]

    @property
    def entities(self) -> list[dict[str, Any]]:
        """Each entity as a map of attributes."""
        return [dict(zip(self.names, row, strict=True)) for row in self.rows]


class Management:
    """The entities of a server. A type is given by its name, or by the last word of it: `log`, `connection`.

    Every method raises EventLogError: Forbidden, a core error, or Refused. A change whose answer is lost is not
    repeated, since someone may have made another change meanwhile: it raises OutcomeUnknown.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def types(self) -> dict[str, Any]:
        """The types of the server, each with its operations and attributes."""
        types: dict[str, Any] = self._call("GET", "/management")["types"]
        return types

    def query(
        self,
        type: str,
        *attributes: str,
        offset: int | None = None,
        count: int | None = None,
        filter: str | None = None,
    ) -> Found:
        """The entities of a type that the user may see, with those attributes (none: all); `filter` as for QUERY."""
        given = {"attributes": ",".join(attributes) or None, "offset": offset, "count": count, "filter": filter}
        parameters = urlencode({name: value for name, value in given.items() if value is not None})
        path = f"/management/{quote(type, safe='')}" + (f"?{parameters}" if parameters else "")
        answer = self._call("GET", path)
        return Found(answer["attributeNames"], answer["results"])

    def read(self, type: str, name: str) -> dict[str, Any]:
        """All attributes of one entity."""
        return self._entity("GET", type, name)

    def create(self, type: str, name: str, attributes: Mapping[str, Any], *, drops_at_most: int = 0) -> dict[str, Any]:
        """Create an entity. Returns all its attributes. Raises WouldDrop for a first consumer, like
        `register_consumer`.
        """
        return self._entity("PUT", type, name, attributes, drops_at_most)

    def update(self, type: str, name: str, changes: Mapping[str, Any], *, drops_at_most: int = 0) -> dict[str, Any]:
        """Change an entity; None removes a value. Returns all its attributes.

        Raises WouldDrop if settings of a log, or a moved consumer, drop more events than `drops_at_most`.
        """
        return self._entity("PATCH", type, name, changes, drops_at_most)

    def delete(self, type: str, name: str, *, drops_at_most: int = 0) -> None:
        """Delete an entity; this closes a connection, a session or a link.

        Raises WouldDrop if the deleted consumer makes its log drop more events than `drops_at_most`.
        """
        path = _path(type, name) + dropping(drops_at_most)
        self._transport.call(Request(Route("DELETE", path), b"", "", wire.nothing, is_sent_once=True))

    def perform(self, operation: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """An operation of the management node itself: GET-TYPES, GET-EVENTS, or QUERY over all types."""
        path = f"{_path('management', 'self')}/{quote(operation, safe='')}"
        return self._call("POST", path, arguments or {})

    def _entity(
        self, method: str, type: str, name: str, given: Mapping[str, Any] | None = None, drops_at_most: int = 0
    ) -> dict[str, Any]:
        attributes: dict[str, Any] = self._call(method, _path(type, name) + dropping(drops_at_most), given)
        return attributes

    def _call(self, method: str, path: str, given: Mapping[str, Any] | None = None) -> Any:
        body = b"" if given is None else msgspec.json.encode(given)
        return self._transport.call(Request(Route(method, path), body, "", _decode, is_sent_once=method in _CHANGES))


_CHANGES = ("PUT", "PATCH")
"""Methods that change an entity. An operation of the node itself changes nothing."""


def _decode(answer: Answer) -> Any:
    return msgspec.json.decode(answer.body())


def _path(type: str, name: str) -> str:
    return f"/management/{quote(type, safe='')}/{quote(name, safe='')}"
