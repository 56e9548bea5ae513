"""The console's samples of the whole server: current counters, and how far behind readers are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from heapq import nlargest

from ...amqp.container import Container
from ...console.lag_series import CONSUMERS_MAX
from ...console.rings import FINE_S
from ...console.series import LOG_SERIES, SCRUB_FACTS, LogSample, Sample
from ...core.errors import StorageUnavailable
from ...core.followers import Follower, FollowerKind, Lag, events_behind
from ...core.local import LocalLog
from ...core.loop.memory import MemoryAccount
from ...core.settings import is_own
from ...core.store import LogStore
from ...management.notifications.consumers import ConsumerWatch
from ...management.ports import joined
from ..front.gate import Gate
from .protocol_traffic import TrafficNow

POSITIONS_MAX = 2000
"""How many positions an event is looked up for. Webhooks are looked up each time, all others once until they move. A
group has up to 1,024, one in each partition. """
NAME_BYTES_MAX = 2500
"""The length limit of reader names, because peers choose the names of links, and all series of a request must fit a
request line.
"""
_OF_ONE_PART = (FollowerKind.GROUP, FollowerKind.WEBHOOK)
"""Kinds that have one name in addition to the log's name."""
_Who = tuple[LocalLog, FollowerKind, str, str]


class Lags:
    """The lag of registered consumers, consumer groups, durable links, streams and webhooks."""

    def __init__(self, watch: ConsumerWatch, webhooks: Callable[[], Awaitable[Iterable[Follower]]]) -> None:
        """`webhooks` returns their positions; it is called on the event loop."""
        self._watch, self._webhooks = watch, webhooks

    async def now(self) -> Mapping[str, Lag]:
        """By name, with the readers that are furthest behind first. A group shows its partition that is furthest
        behind, and its oldest event. Readers that cannot be read, need too many look-ups, or have too long a name are
        left out."""
        return await asyncio.to_thread(self._measured, await self._webhooks())

    def _measured(self, webhooks: Iterable[Follower]) -> Mapping[str, Lag]:
        positions: dict[_Who, list[Follower]] = {}
        for follower in (*self._watch.lasting(), *webhooks):
            if not is_own(follower.log.name):
                positions.setdefault(_who(follower), []).append(follower)
        left, lags = POSITIONS_MAX, dict[str, Lag]()
        for of_one in nlargest(CONSUMERS_MAX, positions.values(), key=_events_behind):
            name = name_of(of_one[0])
            asked = sum(events_behind(each.log, each.after, each.upto) > 0 for each in of_one)
            if asked > left or len(name.encode()) > NAME_BYTES_MAX:
                continue
            left -= asked
            measured = [self._watch.measured(each) for each in of_one]
            known = [lag for lag in measured if lag is not None]
            if len(known) == len(measured):
                lags[name] = Lag(max(lag.events for lag in known), max(lag.age_ms for lag in known))
        return lags


def name_of(follower: Follower) -> str:
    """Its entity name. Except for registered consumers, it begins with the kind and a colon, which no log name
    contains.

    A webhook's is `LOG/ID`. A comma, which separates names of series, is %2C.
    """
    kind, parts = follower.kind, [follower.log.name, follower.owner]
    if kind not in _OF_ONE_PART:
        parts.append(follower.component)
    return ("" if kind is FollowerKind.REGISTERED else f"{kind}:") + joined(*parts).replace(",", "%2C")


def _who(follower: Follower) -> _Who:
    """All partitions of a group count as one reader."""
    component = "" if follower.kind is FollowerKind.GROUP else follower.component
    return follower.log, follower.kind, follower.owner, component


def _events_behind(positions: Iterable[Follower]) -> int:
    return max(events_behind(each.log, each.after, each.upto) for each in positions)


class Measuring:
    """Takes the samples. Any thread may call `sample`, which also checks the disk."""

    def __init__(
        self,
        store: LogStore,
        gate: Gate,
        container: Container,
        refusals: Callable[[], Mapping[str, int]],
        traffic: TrafficNow,
        memory: MemoryAccount,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`refusals` are those of logins and accesses, `traffic` is per protocol, `memory` counts what peers hold; the
        clock returns s since 1970."""
        self._store, self._gate, self._container, self._refusals = store, gate, container, refusals
        self._traffic, self._memory, self._clock = traffic, memory, clock

    def sample(self) -> Sample:
        """The counters so far. Logs that have not been opened have no counts."""
        opened = [log for log in self._store.opened() if not is_own(log.name)]
        logs = {log.name: _sample(log) for log in opened}
        statistics = self._container.statistics
        appended, read = (sum(_count(log, name) for log in opened) for name in ("events_appended", "events_read"))
        counts: dict[str, float] = {
            "events_appended": appended,
            "events_read": read,
            "requests": sum(list(self._gate.meter.counts.values())),
            "refusals": sum(list(self._refusals().values())),
            "amqp_messages_received": statistics.messages_received,
            "amqp_messages_sent": statistics.messages_sent,
        }
        for protocol, (came_in, went_out) in self._traffic().items():
            counts |= {f"{protocol}_events_in": came_in, f"{protocol}_events_out": went_out}
        gauges: dict[str, float] = {
            "streams": self._gate.streams,
            "amqp_connections": len(self._container.connections),
            "queued_bytes": sum(_count(log, "queued_bytes") for log in opened),
            "memory_held_bytes": self._memory.bytes,
            "memory_budget_bytes": self._memory.bytes_max,
        }
        gauges.update(self._disk())
        return Sample(self._clock(), counts, gauges, logs, self._scrub())

    def _scrub(self) -> Mapping[str, float]:
        """The progress of the scrub; empty if logs are in memory."""
        from ...storage import Engine  # not needed by a server that keeps its logs in memory

        if not isinstance(self._store, Engine):
            return {}
        scrub, place = self._store.scrub, self._store.scrub.place
        facts = (scrub.is_under_way, place.ended_at, place.bytes, len(place.damaged), scrub.mended)
        return dict(zip(SCRUB_FACTS, facts, strict=True))

    def _disk(self) -> Mapping[str, float]:
        """Empty if logs are in memory, or if the disk does not respond."""
        from ...storage import Engine  # not needed by a server that keeps its logs in memory

        if not isinstance(self._store, Engine):
            return {}
        room = self._store.room
        try:
            standing = room.look()
            return {
                "disk_free_bytes": standing.free_bytes,
                "disk_bytes": room.size_bytes,
                "disk_reserve_bytes": standing.reserve_bytes,
            }
        except (OSError, StorageUnavailable):
            return {}


def _sample(log: LocalLog) -> LogSample:
    longest_s = log.statistics.fsync_peaks.since(int(time.monotonic()) - FINE_S)
    return LogSample(log.head(), tuple(_count(log, name) for name in LOG_SERIES), (longest_s,))


def _count(log: LocalLog, name: str) -> float:
    value: float = getattr(log.statistics, name)
    return value
