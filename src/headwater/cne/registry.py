"""The registry of subscriptions or publishers, with its limits.

The state store holds all of them. A webhook's answer to its subscription is checked elsewhere.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from ..core.clocks import wall_clock_ms
from ..core.errors import OutcomeUnknown
from ..core.state import StateStore
from .notifications.addresses import canonical
from .notifications.notification import Dialect
from .notifications.records import Record, Request, Subscription
from .settings import Settings

R = TypeVar("R", bound=Record)
REMOVED_AT_ONCE = 500
"""The maximum number of removals in one transaction of the state store, which blocks other changes for some ms."""


class AlreadyThere(Exception):
    """The endpoint already has such a subscription."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        super().__init__(f"subscription {subscription.id} already exists for the same resource and endpoint")


class TooMany(Exception):
    """The limit of subscriptions or publishers is reached."""


class ResourceUnknown(Exception):
    """The resource is unknown: it has no state and no publisher."""


class StatesFull(Exception):
    """An address has no state, and there is no room for a new one."""


class _Making(NamedTuple):
    """A registration in progress."""

    owner: str
    is_over: asyncio.Event


class Landed(NamedTuple, Generic[R]):
    """Changes that took effect although their outcome was reported as unknown."""

    made: list[R]
    removed: list[R]


class Registry(Generic[R]):
    """Records of one type by id, in order of creation.

    Use it on one event loop: change it by `put` and `remove`, whose writes run in threads.
    """

    def __init__(self, state: StateStore, name: str, type: builtins.type[R], settings: Settings) -> None:
        """`name` is the singular noun for a record: `subscription`, `publisher`."""
        self._state, self._name, self._type, self._settings = state, name, type, settings
        self._kind = f"cne/{name}"
        self._being_made: dict[tuple[str, ...], _Making] = {}
        self._unknown: dict[str, R] = {}
        """Records whose existence was reported as unknown. While the state store does not answer, further changes are
        refused, so these are few.
        """
        self.by_id: dict[str, R] = {}

    def load(self) -> None:
        """Load the stored records; blocks."""
        decoder = msgspec.json.Decoder(self._type)
        found = [decoder.decode(entry.value) for _, entry in self._state.items(self._kind)]
        self.by_id = {record.id: record for record in sorted(found, key=lambda record: (record.created_at, record.id))}

    def find(self, resource: str, endpoint: str | None = None) -> R | None:
        """The record for that resource address (and endpoint, if one is given). Empty segments are ignored."""
        resource = canonical(resource)
        for record in self.by_id.values():
            if canonical(record.resource) == resource and endpoint in (None, record.endpoint):
                return record
        return None

    @contextlib.asynccontextmanager
    async def alone(self, owner: str, *key: str) -> AsyncIterator[None]:
        """Serialise registrations of the same thing, so that the second one finds the record of the first."""
        while (other := self._being_made.get(key)) is not None:
            await other.is_over.wait()
        self._being_made[key] = _Making(owner, asyncio.Event())
        try:
            yield
        finally:
            self._being_made.pop(key).is_over.set()

    def check_room(self, owner: str) -> None:
        """Check the limits for a registration that is in progress. Raises TooMany."""
        owners = [record.owner for record in self.by_id.values()]
        owners += [making.owner for making in self._being_made.values()]
        if len(owners) > (limit := self._settings.subscriptions_max):
            raise TooMany(f"there are already {limit} {self._name}s, the maximum")
        # Many callers may share an address, and without users nothing but the address is known.
        limit = self._settings.owner_subscriptions_max
        if not owner.startswith("address:") and owners.count(owner) > limit:
            raise TooMany(f"this user already has {limit} {self._name}s, the maximum")

    def record_of(self, request: Request, dialect: Dialect, owner: str, base: str, **more: Any) -> R:
        """The record of a request, with a new id; `base` is the URI before the id. `put` registers it."""
        id = str(uuid.uuid4())
        return self._type(
            id=id,
            location=f"{base}/{id}",
            resource=request.resource,
            endpoint=request.endpoint,
            dialect=dialect,
            owner=owner,
            created_at=wall_clock_ms(),
            **more,
        )

    async def put(self, record: R) -> None:
        """Add a record; it is durable when this returns. Raises EventLogError."""
        try:
            await asyncio.to_thread(self._state.put, self._kind, record.id, msgspec.json.encode(record))
        except OutcomeUnknown:
            self._unknown[record.id] = record
            raise
        self.by_id[record.id] = record

    async def remove(self, ids: Iterable[str]) -> None:
        """Remove records durably, many per transaction, because each transaction waits for the disk.

        Raises EventLogError: records that are still in `by_id` may exist.
        """
        known = [id for id in ids if id in self.by_id]
        for index in range(0, len(known), REMOVED_AT_ONCE):
            piece = known[index : index + REMOVED_AT_ONCE]
            try:
                await asyncio.to_thread(self._state.delete_all, self._kind, piece)
            except OutcomeUnknown:
                self._unknown |= {id: self.by_id[id] for id in piece if id in self.by_id}
                raise
            for id in piece:
                self.by_id.pop(id, None)
                self._unknown.pop(id, None)

    async def take_landed(self) -> Landed[R]:
        """Apply the changes that were reported as unknown and whose outcome is now known. Raises EventLogError."""
        landed = Landed[R]([], [])
        for id, record in list(self._unknown.items()):
            is_there = await asyncio.to_thread(self._state.get, self._kind, id) is not None
            if is_there is (id in self.by_id):
                continue
            self._unknown.pop(id, None)
            if is_there:
                self.by_id[id] = record
                landed.made.append(record)
            elif self.by_id.pop(id, None) is not None:
                landed.removed.append(record)
        return landed
