"""The remembered state of one log's receivers: sources that outlive their links, positions of consumer groups, epochs.

It is kept in memory, loaded once from the `StateStore`, and written behind. Only `load`, `load_group`, `remembers` and
`store` block; call them in a thread. The node takes `changes()` on its event loop, has a thread `store` them, one such
call at a time, and then calls `stored(changes)`; failed or newer changes are among the next ones. Positions
are not durable until the store is flushed; epochs are when `store` returns, and only then may their owner be named.

Entries of the store are of the kind `reader/INCARNATION`, with keys of three lines: `amqp-terminus`, container and link
name; `amqp-group` or `amqp-epoch`, group and partition.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ...core.limits import show
from ...core.loop.memory import Share
from ...core.state import StateStore, kinds_of_log
from ..protocol.conditions import INVALID_FIELD, RESOURCE_LIMIT_EXCEEDED, LinkFault
from .downtime import UptimeRun
from .position import Position

NAME_CHARS_MAX = 256
_TERMINUS, _GROUP, _EPOCH = "amqp-terminus", "amqp-group", "amqp-epoch"


class Expiry(IntEnum):
    """When a source without a link begins to expire (AMQP part 3, 3.5.6), in the order in which things end."""

    LINK_DETACH = 0
    SESSION_END = 1
    CONNECTION_CLOSE = 2
    NEVER = 3

    @property
    def symbol(self) -> str:
        """Its name in a source."""
        return self.name.lower().replace("_", "-")

    @classmethod
    def of(cls, symbol: str) -> Expiry:
        """The expiry policy of a source. Raises LinkFault."""
        for policy in cls:
            if policy.symbol == symbol:
                return policy
        allowed = ", ".join(policy.symbol for policy in cls)
        raise LinkFault(INVALID_FIELD, f"expiry-policy: expected one of {allowed}, got {show(symbol)}")


@dataclass(slots=True)
class Remembered:
    """The source of a receiver. It may outlive its link."""

    container: str
    link: str
    position: Position
    expiry: Expiry
    timeout_s: int
    is_durable: bool
    """Whether it also survives a restart of the server."""
    source: bytes
    """The encoded source, for a receiver that reattaches without one."""
    is_loaded: bool = False
    """Whether it was loaded from the store, which does not keep unsettled deliveries."""
    expires_at: int | None = None
    """When it began to expire, in ms since 1970. None while it has a link, or something else keeps it."""
    left_at: int | None = None
    """When its last link ended, in ms since 1970; None while it has one."""
    down_ms: int = 0
    """Total server downtime until then, in ms: see `downtime`."""


class Change(NamedTuple):
    """An entry to put into the store, or to delete if `value` is None."""

    key: str
    value: dict[str, object] | None


class GroupRecord(NamedTuple):
    """The state of one consumer group, by partition."""

    afters: dict[int, int]
    """Everything up to this number is done."""
    epochs: dict[int, int]
    """Epochs other than 0."""


class Positions:
    """The remembered state of one log incarnation's receivers."""

    def __init__(self, termini_max: int, abandoned_ms: int | None = None, down_ms: int = 0) -> None:
        """`termini_max` limits the sources, and the positions of groups: one for each partition read.

        `abandoned_ms` is how long a source without a link is kept; None means as long as it requests. Server downtime
        does not count; `down_ms` is the total so far."""
        self._termini_max, self._abandoned_ms, self._down_ms = termini_max, abandoned_ms, down_ms
        self._remembered: dict[tuple[str, str], Remembered] = {}
        self._groups: dict[tuple[str, int], Position] = {}
        self._epochs: dict[tuple[str, int], int] = {}
        self._sources_bytes = 0
        self._share: Share | None = None
        """The share of memory in which the sources are counted, if any."""
        self._stored: dict[str, dict[str, object]] = {}
        """The known content of the store, by key."""

    # Sources

    def count_in(self, share: Share) -> None:
        """Count the sources' memory in that share from now on, on its event loop."""
        self._share = share
        share.hold(self._sources_bytes)

    def forget_all(self) -> None:
        """The log is no longer served: stop counting its memory."""
        if self._share is not None:
            self._share.give(self._sources_bytes)
            self._share.close()
            self._share = None

    def remembered(self, container: str, link: str) -> Remembered | None:
        """The remembered source of that receiver, if any."""
        return self._remembered.get((container, link))

    def attached(
        self,
        container: str,
        link: str,
        *,
        after: int,
        expiry: Expiry,
        timeout_s: int,
        is_durable: bool,
        source: bytes = b"",
        is_another: bool = False,
    ) -> Remembered:
        """The source of a receiver that attaches: the remembered one, or a new one that starts after that number.

        With `is_another` it is always new, and replaces the remembered one. Its expiry, timeout, durability and the
        source itself are always updated. Raises LinkFault: names that cannot be kept, too many sources, or too large
        ones.
        """
        known = self._remembered.get((container, link))
        remembered = known
        if remembered is None:
            _check_name("container-id", container)
            _check_name("link name", link)
            if len(self._remembered) >= self._termini_max:
                problem = f"this log remembers {len(self._remembered)} receivers, the maximum"
                raise LinkFault(RESOURCE_LIMIT_EXCEEDED, problem)
            self._count(len(source))
            remembered = Remembered(container, link, Position(after), expiry, timeout_s, is_durable, source)
            self._remembered[container, link] = remembered
            return remembered
        self._count(len(source) - len(remembered.source))
        if is_another:
            remembered.position, remembered.is_loaded = Position(after), False
        remembered.source = source
        remembered.expiry, remembered.timeout_s, remembered.is_durable = expiry, timeout_s, is_durable
        remembered.expires_at = remembered.left_at = None
        return remembered

    def ended(self, remembered: Remembered, what: Expiry, now_ms: int) -> None:
        """The link, the session or the connection of a source has ended, and the link was not closed.

        Call it for each of the three as it ends, but not after another link has taken the source over. The source is
        forgotten when it expires, perhaps at once.
        """
        remembered.position.detached()
        if remembered.left_at is None:
            remembered.left_at, remembered.down_ms = now_ms, self._down_ms
        if remembered.expires_at is None and remembered.expiry <= what:
            remembered.expires_at = now_ms + 1000 * remembered.timeout_s
            if not remembered.timeout_s:
                self.closed(remembered)

    def durable(self) -> list[Remembered]:
        """All remembered sources, attached or not."""
        return list(self._remembered.values())

    def all(self) -> Iterator[Position]:
        """Every remembered position: of sources, and of groups."""
        yield from (remembered.position for remembered in self._remembered.values())
        yield from self._groups.values()

    def closed(self, remembered: Remembered) -> None:
        """The receiver has closed the link, so its source is forgotten."""
        self._forget((remembered.container, remembered.link))

    def expire(self, now_ms: int) -> None:
        """Forget the sources that have expired."""
        for key, remembered in list(self._remembered.items()):
            at = self.expires_at(remembered)
            if at is not None and at <= now_ms:
                self._forget(key)

    def expires_at(self, remembered: Remembered) -> int | None:
        """When a source expires, or will have been without a link for too long, in ms since 1970. None if it never
        expires.
        """
        if self._abandoned_ms is None or remembered.left_at is None:
            return remembered.expires_at
        abandoned_at = remembered.left_at + self._abandoned_ms + self._down_ms - remembered.down_ms
        return abandoned_at if remembered.expires_at is None else min(remembered.expires_at, abandoned_at)

    def expires_next(self) -> int | None:
        """When to call `expire` next, in ms since 1970."""
        return min(
            (at for each in self._remembered.values() if (at := self.expires_at(each)) is not None), default=None
        )

    def _forget(self, key: tuple[str, str]) -> None:
        if (remembered := self._remembered.pop(key, None)) is not None:
            self._count(-len(remembered.source))

    def _count(self, more_bytes: int) -> None:
        """Change the memory count of the sources. Raises LinkFault if there is no room."""
        if self._share is not None:
            if more_bytes <= 0:
                self._share.give(-more_bytes)
            elif not self._share.take(more_bytes):
                problem = f"there is not enough memory to remember another source of {more_bytes} bytes"
                held = f"the sources of this log use {self._sources_bytes}"
                raise LinkFault(RESOURCE_LIMIT_EXCEEDED, f"{problem}; {held}; try again later")
        self._sources_bytes += more_bytes

    # Groups

    def group_position(self, group: str, partition: int, *, after: int, is_reset: bool = False) -> Position:
        """A consumer group's position in a partition: the remembered one, or a new one that starts after that number.

        With `is_reset` it is always new. Raises LinkFault: too many.
        """
        position = self._groups.get((group, partition))
        if position is not None and is_reset:
            position = self._groups[group, partition] = Position(after)
        if position is None:
            self._check_group_room(group, partition)
            position = self._groups[group, partition] = Position(after)
        return position

    def _check_group_room(self, group: str, partition: int) -> None:
        """Raises LinkFault if there is no room for one more position. An epoch takes the place of its position."""
        if len(self._groups) + len(self._epochs) < self._termini_max or (group, partition) in self._epochs:
            return
        known = self._groups.keys() | self._epochs.keys()
        if len(known) >= self._termini_max:
            problem = f"this log remembers {len(known)} group positions, the maximum"
            raise LinkFault(RESOURCE_LIMIT_EXCEEDED, problem)

    def of_group(self, group: str, partitions: int) -> GroupRecord:
        """The state of one group, in a log with that many partitions; other groups are not read."""
        keys = [(group, partition) for partition in range(partitions)]
        afters = {key[1]: found.after for key in keys if (found := self._groups.get(key)) is not None}
        return GroupRecord(afters, {key[1]: epoch for key in keys if (epoch := self._epochs.get(key))})

    def groups(self) -> dict[tuple[str, int], int]:
        """By group and partition: the number after which it resumes."""
        return {key: position.after for key, position in self._groups.items()}

    def forget_group(self, group: str) -> None:
        """Forget the positions of a consumer group; its next receiver starts like one of a new group."""
        self._groups = {key: position for key, position in self._groups.items() if key[0] != group}

    @property
    def epochs(self) -> dict[tuple[str, int], int]:
        """Epochs other than zero, by group and partition: the initial state of `Groups`."""
        return dict(self._epochs)

    def record_epoch(self, group: str, partition: int, epoch: int) -> None:
        """Record the epoch of a `groups.RecordEpoch`; it is durable when it is stored."""
        if epoch:
            self._epochs[group, partition] = epoch
        else:
            self._epochs.pop((group, partition), None)

    # The store

    def changes(self) -> list[Change]:
        """All differences from the store, in full each time until `stored` is called."""
        present = dict(self._entries())
        stored = self._stored
        changes = [Change(key, value) for key, value in present.items() if stored.get(key) != value]
        if len(present) != len(stored) or changes:
            changes += [Change(key, None) for key in stored if key not in present]
        return changes

    def stored(self, changes: Sequence[Change]) -> None:
        """These changes have been stored."""
        for key, value in changes:
            if value is None:
                self._stored.pop(key, None)
            else:
                self._stored[key] = value

    def _entries(self) -> Iterator[tuple[str, dict[str, object]]]:
        for (container, link), remembered in self._remembered.items():
            if remembered.is_durable:
                value: dict[str, object] = {
                    "after": remembered.position.after,
                    "expiry": remembered.expiry.symbol,
                    "timeout_s": remembered.timeout_s,
                    "expires_at": remembered.expires_at,
                    "left_at": remembered.left_at,
                    "down_ms": remembered.down_ms,
                    "source": b64encode(remembered.source).decode(),
                }
                yield f"{_TERMINUS}\n{container}\n{link}", value
        for (group, partition), position in self._groups.items():
            yield f"{_GROUP}\n{group}\n{partition}", {"after": position.after}
        for (group, partition), epoch in self._epochs.items():
            yield f"{_EPOCH}\n{group}\n{partition}", {"epoch": epoch}


def store(state: StateStore, incarnation: str, changes: Sequence[Change], *, flushes: bool = False) -> None:
    """Write changes; blocks. With `flushes`, they and everything stored before survive a power loss.

    Raises what the store raises: then do not pass them to `stored`.
    """
    kind = kinds_of_log(incarnation)[1]
    for key, value in changes:
        if value is None:
            state.delete(kind, key)
        else:
            state.put(kind, key, json.dumps(value).encode(), is_durable=key.startswith(_EPOCH))
    if flushes:
        state.flush()


def load(
    state: StateStore,
    incarnation: str,
    now_ms: int,
    termini_max: int,
    abandoned_ms: int | None = None,
    run: UptimeRun | None = None,
) -> Positions:
    """Load the state of one incarnation of a log; blocks.

    The connections of its receivers ended when this run of the server began, at the latest; without `run`, now.
    """
    since_ms, down_ms, _ = run or UptimeRun(now_ms, 0)
    positions = Positions(termini_max, abandoned_ms, down_ms)
    kind = kinds_of_log(incarnation)[1]
    for key, entry in state.items(kind, "amqp-"):
        sort, first, second = key.split("\n")
        value = json.loads(entry.value)
        positions._stored[key] = value
        if sort == _TERMINUS:
            expiry = Expiry.of(value["expiry"])
            source = b64decode(value.get("source", ""))  # not in 0.1.0
            at = Position(value["after"])
            remembered = Remembered(first, second, at, expiry, value["timeout_s"], True, source, is_loaded=True)
            remembered.expires_at = value["expires_at"]
            remembered.left_at, remembered.down_ms = value.get("left_at"), value.get("down_ms", 0)  # not in 0.1
            positions._remembered[first, second] = remembered
            positions._sources_bytes += len(source)
            positions.ended(remembered, Expiry.CONNECTION_CLOSE, since_ms)
        elif sort == _GROUP:
            positions._groups[first, int(second)] = Position(value["after"])
        elif sort == _EPOCH:
            positions._epochs[first, int(second)] = value["epoch"]
    positions.expire(now_ms)
    return positions


def load_group(state: StateStore, incarnation: str, group: str, partitions: int) -> GroupRecord:
    """The stored state of one group of a log with that many partitions, by its keys; blocks."""
    kind, record = kinds_of_log(incarnation)[1], GroupRecord({}, {})
    for sort, field, found in ((_GROUP, "after", record.afters), (_EPOCH, "epoch", record.epochs)):
        for partition in range(partitions):
            entry = state.get(kind, f"{sort}\n{group}\n{partition}")
            if entry is not None:
                found[partition] = json.loads(entry.value)[field]
    return record


def remembers(state: StateStore, incarnation: str, container: str, link: str) -> bool:
    """Whether the store has the source of that receiver; blocks."""
    kind = kinds_of_log(incarnation)[1]
    return state.get(kind, f"{_TERMINUS}\n{container}\n{link}") is not None


def _check_name(what: str, name: str) -> None:
    if not (1 <= len(name) <= NAME_CHARS_MAX and name.isprintable()):
        problem = f"expected 1 to {NAME_CHARS_MAX} printable characters for a durable link"
        raise LinkFault(INVALID_FIELD, f"{what}: {problem}, got {show(name)}")
