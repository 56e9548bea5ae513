"""Logs, partitions, registered consumers and streams, as entities. Blocking work runs in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from ..core import errors as core
from ..core.access import Guard, Right, User
from ..core.consumer import Consumer
from ..core.followers import lag_of
from ..core.limits import show
from ..core.local import LocalLog
from ..core.log import LogInfo
from ..core.settings import SYSTEM_LOG, LogSettings, check_log_name
from ..core.store import LogStore
from ..core.streams import StreamPosition
from ..formats.settings.logs import attribute_name
from .ports import Attributes, Dropping, ReadOnly, joined, parted
from .statuses import OperationRefused, Status, refusal_of


def _camel(*names: str) -> Mapping[str, str]:
    """Field names by the attributes that show them."""
    return {attribute_name(name): name for name in names}


SETTINGS = _camel(*(field.name for field in fields(LogSettings)))
"""The attributes of a log that are fields of its LogSettings."""
_INFO = _camel("incarnation", "created_at", "head", "first_retained", "events", "bytes", "allocated_bytes")
_STATISTICS = _camel(
    "appends", "events_appended", "bytes_appended", "commits", "conditions_failed", "duplicates", "refused",
    "events_read", "queued_requests", "queued_bytes", "segments",
)  # fmt: skip


class LogRights:
    """Which logs of a store a user may see and manage."""

    def __init__(self, store: LogStore, guard: Guard) -> None:
        self.store, self._guard = store, guard

    async def visible(self, user: User) -> list[str]:
        """The names of the logs that the user may see, in order."""
        names = await asyncio.to_thread(self.store.names)
        return [name for name in names if may_see(user, name)]

    def check_seen(self, user: User, log: str) -> None:
        """Raises Forbidden unless the user may read or manage the log."""
        if not may_see(user, log):
            self._guard.authorize(user, Right.READ, log)

    def check_managed(self, user: User, log: str) -> None:
        """Raises Forbidden unless the user may manage the log."""
        self._guard.authorize(user, Right.MANAGE, log)

    def opened(self, log: str) -> LocalLog:
        """The log with that name; blocks. Raises LogNotFound, StorageCorrupted, StorageUnavailable."""
        if log != SYSTEM_LOG:
            try:
                check_log_name(log)
            except core.InvalidInput:
                raise core.LogNotFound(log) from None
        return self.store.open(log)

    async def of_all(self, user: User, listed: Callable[[str], Sequence[str]]) -> list[str]:
        """The result of `listed` for each log that the user may see, by log name. It does not open logs, because there
        may be thousands. A log that cannot be read has no results."""

        def of_one(name: str) -> Sequence[str]:
            try:
                return listed(name)
            except (core.LogNotFound, core.StorageCorrupted, core.StorageUnavailable):
                return ()  # deleted in the meantime, or reported as the problem of the log itself

        names = await self.visible(user)
        return await asyncio.to_thread(lambda: [found for name in names for found in of_one(name)])


def may_see(user: User, log: str) -> bool:
    """Whether a user may read the log's entity."""
    return user.may(Right.READ, log) or user.may(Right.MANAGE, log)


class Logs(Dropping):
    """Logs as entities, named after the logs."""

    def __init__(self, rights: LogRights) -> None:
        self._rights, self._store = rights, rights.store
        self._changing = asyncio.Lock()
        """Serializes updates and creations, because both read the current state and write all of it."""

    async def names(self, user: User) -> Sequence[str]:
        return await self._rights.visible(user)

    async def read(self, user: User, name: str) -> Attributes:
        """See Entities. A log that cannot be opened has only a `problem`."""
        self._rights.check_seen(user, name)
        return await asyncio.to_thread(self._read, name)

    async def create(self, user: User, name: str, given: Attributes) -> Attributes:
        self._rights.check_managed(user, name)
        async with self._changing:
            return await asyncio.to_thread(self._create, name, given)

    async def update(self, user: User, name: str, changes: Attributes) -> Attributes:
        self._rights.check_managed(user, name)
        async with self._changing:
            return await asyncio.to_thread(self._update, name, changes)

    async def delete(self, user: User, name: str) -> None:
        self._rights.check_managed(user, name)
        await asyncio.to_thread(lambda: self._store.delete(self._rights.opened(name).name))

    def _read(self, name: str) -> Attributes:
        try:
            return _shown(self._rights.opened(name))
        except (core.StorageCorrupted, core.StorageUnavailable) as error:
            return {"problem": refusal_of(error).description}

    def _create(self, name: str, given: Attributes) -> Attributes:
        if check_log_name(name) in self._store.names():
            raise core.LogExists(name)
        return _shown(self._store.create(name, _settings(LogSettings(), given)))

    def _update(self, name: str, changes: Attributes) -> Attributes:
        log = self._rights.opened(name)
        settings = _settings(log.settings, changes)
        if settings != log.settings:
            log = self._store.change(name, settings, drops_at_most=self.drops_at_most)
        return _shown(log)


class Partitions(ReadOnly):
    """The partitions of all logs as entities, named `LOG/NUMBER`."""

    def __init__(self, rights: LogRights) -> None:
        self._rights = rights

    async def names(self, user: User) -> Sequence[str]:
        settings_of = self._rights.store.settings_of
        return await self._rights.of_all(
            user, lambda log: [f"{log}/{number}" for number in range(settings_of(log).partitions)]
        )

    async def read(self, user: User, name: str) -> Attributes:
        log, _, number = name.partition("/")
        self._rights.check_seen(user, log)
        return await asyncio.to_thread(self._read, log, number)

    def _read(self, name: str, number: str) -> Attributes:
        log = self._rights.opened(name)
        counts = log.info().partition_events or (log.info().events,)
        if number not in map(str, range(len(counts))):
            raise OperationRefused(Status.NOT_FOUND, f"log {name!r} has the partitions 0 to {len(counts) - 1}")
        partition = int(number)
        first = next(log.read(partition=partition, limit=1), None)
        last = next(log.read(partition=partition, limit=1, backwards=True), None)
        return {
            "log": name,
            "number": partition,
            "events": counts[partition],
            "first": first.sequence_number if first else None,
            "last": last.sequence_number if last else None,
            "firstAt": first.recorded_at if first else None,
            "lastAt": last.recorded_at if last else None,
        }


class Consumers(Dropping):
    """The registered consumers of all logs as entities, named `LOG/OWNER/COMPONENT`."""

    def __init__(self, rights: LogRights) -> None:
        self._rights = rights

    async def names(self, user: User) -> Sequence[str]:
        consumers_of = self._rights.store.consumers_of
        return await self._rights.of_all(
            user, lambda log: [joined(log, consumer.owner, consumer.component) for consumer in consumers_of(log)]
        )

    async def read(self, user: User, name: str) -> Attributes:
        log, owner, component = _consumer_key(name)
        self._rights.check_seen(user, log)

        def found() -> Attributes:
            opened = self._rights.opened(log)
            return _shown_consumer(opened, _registered(opened, owner, component))

        return await asyncio.to_thread(found)

    async def create(self, user: User, name: str, given: Attributes) -> Attributes:
        """See Entities: registers the consumer."""
        log, owner, component = _consumer_key(name)
        self._rights.check_managed(user, log)

        def made() -> Attributes:
            opened = self._rights.opened(log)
            if opened.consumer(owner, component) is not None:
                raise OperationRefused(Status.CONFLICT, f"consumer {name!r} is already registered")
            with _positions():
                made = opened.register_consumer(
                    owner, component, after=given.get("acknowledged"), drops_at_most=self.drops_at_most
                )
            return _shown_consumer(opened, made)

        return await asyncio.to_thread(made)

    async def update(self, user: User, name: str, changes: Attributes) -> Attributes:
        """See Entities: moves its position."""
        log, owner, component = _consumer_key(name)
        self._rights.check_managed(user, log)

        def moved() -> Attributes:
            opened = self._rights.opened(log)
            if "acknowledged" in changes:
                with _positions():
                    opened.reset_consumer(owner, component, changes["acknowledged"], drops_at_most=self.drops_at_most)
            return _shown_consumer(opened, _registered(opened, owner, component))

        return await asyncio.to_thread(moved)

    async def delete(self, user: User, name: str) -> None:
        """See Entities: unregisters it."""
        log, owner, component = _consumer_key(name)
        self._rights.check_managed(user, log)

        def unregister() -> None:
            self._rights.opened(log).unregister_consumer(owner, component, drops_at_most=self.drops_at_most)

        await asyncio.to_thread(unregister)


class Streams(ReadOnly):
    """Streams that have reported a position, as entities, named `LOG/OWNER/STREAM`."""

    def __init__(self, rights: LogRights) -> None:
        self._rights = rights

    async def names(self, user: User) -> Sequence[str]:
        """See Entities. A log that is not open yet has no streams."""

        def listed() -> list[str]:
            seen = [log for log in self._rights.store.opened() if may_see(user, log.name)]
            return [joined(log.name, each.owner, each.name) for log in seen for each in log.streams.all()]

        return await asyncio.to_thread(listed)

    async def read(self, user: User, name: str) -> Attributes:
        log, owner, stream = _stream_key(name)
        self._rights.check_seen(user, log)

        def found() -> Attributes:
            opened = self._rights.opened(log)
            if (told := opened.streams.get(owner, stream)) is None:
                raise _no_stream(log, name)
            return _shown_stream(opened, told)

        return await asyncio.to_thread(found)

    async def delete(self, user: User, name: str) -> None:
        """See Entities. Forgets the stream until it reports a position again."""
        log, owner, stream = _stream_key(name)
        self._rights.check_managed(user, log)
        opened = await asyncio.to_thread(self._rights.opened, log)
        if not opened.streams.forget(owner, stream):
            raise _no_stream(log, name)


@contextlib.contextmanager
def _positions() -> Iterator[None]:
    """Reports position errors with the attribute's name."""
    try:
        yield
    except core.InvalidPosition as error:
        raise OperationRefused(Status.BAD_REQUEST, f"acknowledged: {error.problem}") from None


def _consumer_key(name: str) -> tuple[str, str, str]:
    return _key(name, "a consumer's name is LOG/OWNER/COMPONENT")


def _stream_key(name: str) -> tuple[str, str, str]:
    return _key(name, "a stream's name is LOG/OWNER/STREAM")


def _key(name: str, form: str) -> tuple[str, str, str]:
    """The three parts of a name; a Refusal states the expected form."""
    parts = parted(name, 3)
    if parts is None:
        raise OperationRefused(Status.NOT_FOUND, f"{form}, got {show(name)}")
    first, second, third = parts
    return first, second, third


def _no_stream(log: str, name: str) -> OperationRefused:
    return OperationRefused(Status.NOT_FOUND, f"log {log!r} has no stream {show(name)}")


def _registered(log: LocalLog, owner: str, component: str) -> Consumer:
    consumer = log.consumer(owner, component)
    if consumer is None:
        raise core.ConsumerNotFound(owner, component)
    return consumer


def _shown(log: LocalLog) -> dict[str, Any]:
    info: LogInfo = log.info()
    statistics = log.statistics
    return (
        {attribute: getattr(info.settings, field) for attribute, field in SETTINGS.items()}
        | {attribute: getattr(info, field) for attribute, field in _INFO.items()}
        | {attribute: getattr(statistics, field) for attribute, field in _STATISTICS.items()}
    )


def _shown_consumer(log: LocalLog, consumer: Consumer) -> dict[str, Any]:
    lag = lag_of(log, consumer.acknowledged, time.time_ns() // 1_000_000)
    return {
        "log": log.name,
        "owner": consumer.owner,
        "component": consumer.component,
        "acknowledged": consumer.acknowledged,
        "lag": lag.events,
        "lagMs": lag.age_ms,
        "epoch": consumer.epoch,
        "registeredAt": consumer.registered_at,
        "seenAt": consumer.seen_at,
    }


def _shown_stream(log: LocalLog, told: StreamPosition) -> dict[str, Any]:
    lag = lag_of(log, told.position, time.time_ns() // 1_000_000)
    return {
        "log": log.name,
        "owner": told.owner,
        "stream": told.name,
        "position": told.position,
        "lag": lag.events,
        "lagMs": lag.age_ms,
        "seenAt": told.told_at,
    }


def _settings(settings: LogSettings, given: Attributes) -> LogSettings:
    """The settings with the given changes; None removes a value. Raises OperationRefused that names the attribute."""
    try:
        return replace(settings, **{SETTINGS[attribute]: value for attribute, value in given.items()})
    except core.InvalidSettings as error:
        attributes = {field: attribute for attribute, field in SETTINGS.items()}
        where = attributes.get(error.where, error.where)
        raise OperationRefused(Status.BAD_REQUEST, f"{where}: {error.problem}") from None
