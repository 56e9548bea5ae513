"""The operations of a management node (AMQP Management 3.3 and 3.4; GET-EVENTS of event notification 0.2).

Management requests from every protocol are handled here; nothing here depends on AMQP or HTTP.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core import errors as core
from ..core.access import User
from ..core.limits import show
from ..core.loop.fair_semaphore import FairSemaphore
from ..core.loop.slices import Slices
from .attribute_input import changed_attributes, initial_attributes
from .attributes import Kind
from .entities import (
    COMMON,
    CREATE,
    DELETE,
    DROPS_AT_MOST,
    NODE_TYPE,
    READ,
    SELF,
    TYPES,
    UPDATE,
    Attribute,
    EntityType,
    identity_of,
)
from .notifications.catalog import CATALOG
from .ports import Attributes, Dropping, Entities, ReadOnly, Time
from .query_filter import Selection, selection
from .statuses import OperationRefused, Status, refusal_of

_logger = logging.getLogger("headwater.management")

RESULTS_MAX = 10_000
"""The maximum number of entities in the answer to one QUERY. A larger result is refused rather than truncated, so that
the client notices.
"""
VALUES_MAX = 1_000_000
"""The maximum number of values in the results of one QUERY, including nulls."""
NAMES_MAX = 1000
"""The maximum number of attributes that one QUERY may name."""
_OF_NAMES = frozenset(attribute.name for attribute in COMMON)
"""The attributes that are known from an entity's name."""
LOOKED_AT_MAX = 100_000
"""The maximum number of entities that the filter of one QUERY examines."""
TURNS = 4
"""The maximum number of concurrent operations of all peers. They use threads that are shared with other work. Users
take turns.
"""
OF_ENTITIES = (CREATE, READ, UPDATE, DELETE)


@dataclass(frozen=True, slots=True)
class Request:
    """A requested operation: the target's name, and the body.

    Over AMQP, these are all application-properties of the message.
    """

    user: User
    properties: Mapping[str, object]
    body: object = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of an operation. `count` is returned in addition to the body (QUERY)."""

    status: Status
    body: object
    description: str
    count: int | None = None
    total: int | None = None
    """How many entities the user may see, if a QUERY has no filter."""


class Management:
    """One management node: the served types and their operations."""

    def __init__(self, has_lapsed: Callable[[], bool] = lambda: False) -> None:
        """`has_lapsed`: see LogStore. If it returns true, every operation is refused."""
        self._has_lapsed = has_lapsed
        self._places = FairSemaphore(TURNS)
        self._entities: dict[str, Entities] = {NODE_TYPE: _Node()}
        self._of_node: Mapping[str, Callable[[Request], Awaitable[Answer]]] = {
            "QUERY": self._query,
            "GET-TYPES": self._get_types,
            "GET-ATTRIBUTES": self._get_attributes,
            "GET-OPERATIONS": self._get_operations,
            "GET-ANNOTATIONS": self._get_annotations,
            "GET-MGMT-NODES": self._get_nodes,
            "GET-EVENTS": self._get_events,
        }

    def serve(self, type: EntityType, entities: Entities) -> None:
        """Serve entities of that type from now on."""
        self._entities[type.name] = entities

    @property
    def types(self) -> list[EntityType]:
        """The served types, in the order in which a QUERY answers their entities."""
        return [type for type in TYPES.values() if type.name in self._entities]

    def type(self, name: str) -> EntityType:
        """The type with that name; its last part is enough: `log`. Raises OperationRefused."""
        return self._type("type", next((each.name for each in self.types if each.word == name), name))

    async def do(self, request: Request) -> Answer:
        """Perform the operation. Raises OperationRefused, EventLogError."""
        if self._has_lapsed():
            raise OperationRefused(Status.UNAVAILABLE, "another server may be the primary now; send the request to it")
        operation = _text(request, "operation")
        if operation is None:
            raise OperationRefused(Status.BAD_REQUEST, "operation: missing; specify the operation to perform")
        async with self._places.place(request.user.name):
            if operation in OF_ENTITIES:
                return await self._of_entity(operation, request)
            return await self._of_self(operation, request)

    async def perform(self, request: Request) -> Answer:
        """Like `do`, but errors become answers. It does not raise."""
        try:
            return await self.do(request)
        except OperationRefused as refusal:
            return Answer(refusal.status, {}, refusal.description)
        except core.WouldDrop as error:
            facts = {name: getattr(error, name) for name in core.WouldDrop.MEMBERS}
            return Answer(Status.CONFLICT, facts, str(error))
        except core.EventLogError as error:
            answered = refusal_of(error)
            if answered.status is Status.INTERNAL_ERROR:
                _logger.error("a management operation failed: %s", error)
            return Answer(answered.status, {}, answered.description)
        except Exception:
            _logger.exception("a management operation failed")
            return Answer(Status.INTERNAL_ERROR, {}, "internal error; see the server's log")

    # On entities (3.3)

    async def _of_entity(self, operation: str, request: Request) -> Answer:
        type, name = self._addressed(operation, request)
        if operation not in type.operations:
            able = ", ".join(type.operations)
            raise OperationRefused(
                Status.NOT_IMPLEMENTED, f"{type.name} has no operation {operation}; its operations are {able}"
            )
        entities, user = self._entities[type.name], request.user
        if isinstance(entities, Dropping):
            entities = entities.dropping(_bound(request, DROPS_AT_MOST) or 0)
        if operation == CREATE:
            made = await entities.create(user, name, initial_attributes(type, name, request.body))
            return _answered(Status.CREATED, _shown(type, name, made))
        if operation == READ:
            return _answered(Status.OK, _shown(type, name, await entities.read(user, name)))
        if operation == UPDATE:
            present = _shown(type, name, await entities.read(user, name))
            changed = await entities.update(user, name, changed_attributes(type, request.body, present))
            return _answered(Status.OK, _shown(type, name, changed))
        await entities.delete(user, name)
        return _answered(Status.NO_CONTENT, {})

    def _addressed(self, operation: str, request: Request) -> tuple[EntityType, str]:
        """The type and the name of the entity. Raises OperationRefused."""
        type, name, identity = (_text(request, key) for key in ("type", "name", "identity"))
        if operation == CREATE and identity is not None:
            raise OperationRefused(Status.BAD_REQUEST, "identity: assigned by the server on creation; specify a name")
        if (name is None) == (identity is None):
            given = "neither" if name is None else "both"
            raise OperationRefused(Status.BAD_REQUEST, f"expected exactly one of name and identity, got {given}")
        if identity is not None:
            return self._identified(identity, type)
        if type is None:
            raise OperationRefused(
                Status.BAD_REQUEST, "type: missing; specify the type with the name, or specify the identity"
            )
        assert name is not None
        return self._type("type", type), name

    def _identified(self, identity: str, type: str | None) -> tuple[EntityType, str]:
        word, _, name = identity.partition("/")
        for each in self.types:
            if identity_of(each.name, name) == f"{word}/{name}":
                if type not in (None, each.name):
                    problem = f"{show(identity)} is of type {each.name}, not {show(type)}"
                    raise OperationRefused(Status.NOT_FOUND, problem)
                return each, name
        raise OperationRefused(Status.NOT_FOUND, f"there is no entity with the identity {show(identity)}")

    # On the node itself (3.4)

    async def _of_self(self, operation: str, request: Request) -> Answer:
        type, name, identity = (_text(request, key) for key in ("type", "name", "identity"))
        if type not in (None, NODE_TYPE):
            able = ", ".join(self._type("type", type).operations)
            raise OperationRefused(
                Status.NOT_IMPLEMENTED, f"{type} has no operation {show(operation)}; its operations are {able}"
            )
        perform = self._of_node.get(operation)
        if perform is None:
            able = ", ".join((*OF_ENTITIES, *self._of_node))
            raise OperationRefused(
                Status.NOT_IMPLEMENTED, f"there is no operation {show(operation)}; the operations are {able}"
            )
        if identity is not None:
            raise OperationRefused(
                Status.BAD_REQUEST, f"identity: {operation} applies to the node itself and has no identity argument"
            )
        if name not in (None, SELF):
            problem = f"name: {operation} applies to the node itself; expected {SELF!r}, got {show(name)}"
            raise OperationRefused(Status.NOT_FOUND, problem)
        return await perform(request)

    async def _query(self, request: Request) -> Answer:
        """3.4.1"""
        types = self._asked_for(request)
        wanted = _attribute_names(request.body) or list(
            dict.fromkeys(name for type in types for name in type.attribute_names)
        )
        offset, count = _bound(request, "offset") or 0, _bound(request, "count")
        chosen = selection(_text(request, "filter"), types)
        found = [(type, name) for type in types for name in await self._entities[type.name].names(request.user)]
        if chosen is None:
            page = found[offset:] if count is None else found[offset : offset + count]
            _check_size(len(page), len(wanted))
            results = await self._rows(request.user, page, wanted)
        else:
            results = await self._chosen(request.user, found, wanted, chosen, offset, count)
        body, total = {"attributeNames": wanted, "results": results}, None if chosen is not None else len(found)
        return Answer(Status.OK, body, Status.OK.phrase, len(results), total)

    async def _rows(
        self, user: User, page: Sequence[tuple[EntityType, str]], wanted: Sequence[str]
    ) -> list[list[object]]:
        is_named = _OF_NAMES.issuperset(wanted)  # like a listing: no entity is read and no log is opened
        slices, rows = Slices(), []
        for type, name in page:
            await slices.pause()
            shown = _shown(type, name, {}) if is_named else await self._found(user, type, name)
            if shown is not None:
                rows.append([shown.get(attribute) for attribute in wanted])
        return rows

    async def _chosen(
        self,
        user: User,
        found: Sequence[tuple[EntityType, str]],
        wanted: Sequence[str],
        chosen: Selection,
        offset: int,
        count: int | None,
    ) -> list[list[object]]:
        """The page of rows that pass a filter. Raises OperationRefused."""
        if len(found) > LOOKED_AT_MAX:
            problem = (
                f"filter: there are {len(found)} entities, but at most {LOOKED_AT_MAX} can be filtered; specify an "
                "entityType"
            )
            raise OperationRefused(Status.BAD_REQUEST, problem)
        is_named = _OF_NAMES.issuperset((*wanted, *chosen.names))
        slices, rows, passed = Slices(), list[list[object]](), 0
        for type, name in found:
            if count is not None and len(rows) >= count:
                break
            await slices.pause()
            shown = _shown(type, name, {}) if is_named else await self._found(user, type, name)
            if shown is None or not chosen.takes(type, shown):
                continue
            passed += 1
            if passed > offset:
                rows.append([shown.get(attribute) for attribute in wanted])
                _check_size(len(rows), len(wanted))
        return rows

    async def _found(self, user: User, type: EntityType, name: str) -> dict[str, Any] | None:
        """The result of a QUERY for an entity; None if the entity was removed in the meantime."""
        try:
            return _shown(type, name, await self._entities[type.name].read(user, name))
        except (OperationRefused, core.LogNotFound, core.ConsumerNotFound, core.Closed):
            return None
        except (core.StorageCorrupted, core.StorageUnavailable):
            return None  # belongs to a log that cannot be opened, which the log's own entity reports

    async def _get_types(self, request: Request) -> Answer:
        """3.4.2: no type extends another."""
        return _answered(Status.OK, {type.name: [] for type in self._asked_for(request)})

    async def _get_attributes(self, request: Request) -> Answer:
        """3.4.4"""
        return _answered(Status.OK, {type.name: type.attribute_names for type in self._asked_for(request)})

    async def _get_operations(self, request: Request) -> Answer:
        """3.4.5"""
        return _answered(
            Status.OK,
            {
                type.name: {name: list(arguments) for name, arguments in type.operations.items()}
                for type in self._asked_for(request)
            },
        )

    async def _get_annotations(self, request: Request) -> Answer:
        """3.4.3: no type has annotations."""
        return _answered(Status.OK, {type.name: [] for type in self._asked_for(request)})

    async def _get_nodes(self, request: Request) -> Answer:
        """3.4.6: this node has no other nodes."""
        return _answered(Status.OK, [])

    async def _get_events(self, request: Request) -> Answer:
        """Event notification 0.2: types of events, and the names of their attributes."""
        wanted = _text(request, "eventType")
        found = {entry.type.value: list(entry.names) for entry in CATALOG.values()}
        if wanted is None:
            return _answered(Status.OK, found)
        if wanted not in found:
            problem = f"eventType: there is no {show(wanted)}; GET-EVENTS without eventType lists all types"
            raise OperationRefused(Status.NOT_FOUND, problem)
        return _answered(Status.OK, {wanted: found[wanted]})

    def _asked_for(self, request: Request) -> list[EntityType]:
        """The types named by `entityType`; all if it is missing. Raises OperationRefused."""
        wanted = _text(request, "entityType")
        return self.types if wanted is None else [self._type("entityType", wanted)]

    def _type(self, key: str, name: str) -> EntityType:
        if name not in self._entities:
            known = ", ".join(type.name for type in self.types)
            raise OperationRefused(Status.NOT_FOUND, f"{key}: there is no type {show(name)}; the types are {known}")
        return TYPES[name]


class _Node(ReadOnly):
    """The management node, as an entity."""

    async def names(self, user: User) -> Sequence[str]:
        return [SELF]

    async def read(self, user: User, name: str) -> Attributes:
        if name != SELF:
            raise OperationRefused(Status.NOT_FOUND, f"the only {NODE_TYPE} is {SELF!r}, got {show(name)}")
        return {}


def _check_size(results: int, attributes: int) -> None:
    """Raises OperationRefused if the result of a QUERY would be too large."""
    if results > RESULTS_MAX:
        problem = (
            f"there are {results} results, but an answer can contain {RESULTS_MAX}; request pages with offset and count"
        )
        raise OperationRefused(Status.BAD_REQUEST, problem)
    if results * attributes > VALUES_MAX:
        problem = f"{results} results of {attributes} attributes are {results * attributes} values"
        raise OperationRefused(
            Status.BAD_REQUEST, f"{problem}, but an answer can contain {VALUES_MAX}; request fewer attributes, or pages"
        )


def _answered(status: Status, body: object) -> Answer:
    return Answer(status, body, status.phrase)


def _shown(type: EntityType, name: str, found: Attributes) -> dict[str, Any]:
    """All attributes of an entity, in the order of its type."""
    common = {"name": name, "identity": identity_of(type.name, name), "type": type.name}
    known = {**found, **common}
    return {each.name: _timed(each, known.get(each.name)) for each in type.attributes if not each.is_secret}


def _timed(attribute: Attribute, value: Any) -> Any:
    return Time(value) if attribute.kind is Kind.TIMESTAMP and value is not None else value


def _text(request: Request, key: str) -> str | None:
    value = request.properties.get(key)
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    raise OperationRefused(Status.BAD_REQUEST, f"{key}: expected a string, got {show(value)}")


def _bound(request: Request, key: str) -> int | None:
    value = request.properties.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise OperationRefused(Status.BAD_REQUEST, f"{key}: expected a whole number of 0 or more, got {show(value)}")
    return int(value)


def _attribute_names(body: object) -> list[str]:
    """The attributes that a QUERY asks for; empty means all. Raises OperationRefused."""
    if body is None:
        return []
    if not isinstance(body, Mapping):
        raise OperationRefused(Status.BAD_REQUEST, f"the body must be a map with `attributeNames`, got {show(body)}")
    names = body.get("attributeNames")
    if names is None:
        return []
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        problem = f"attributeNames: expected a list of strings, got {show(names)}"
        raise OperationRefused(Status.BAD_REQUEST, problem)
    if len(names) > NAMES_MAX:
        problem = f"attributeNames: expected at most {NAMES_MAX} names, got {len(names)}"
        raise OperationRefused(Status.BAD_REQUEST, problem)
    if len(set(names)) < len(names):
        raise OperationRefused(Status.BAD_REQUEST, "attributeNames: a name occurs twice")
    return [str(name) for name in names]
