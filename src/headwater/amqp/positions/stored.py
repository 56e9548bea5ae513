"""What one log remembers of its receivers: sources that outlive their links, positions of consumer groups, epochs.

It is kept in memory, loaded once from the `StateStore`, and written behind. Nothing here blocks but `load` and `store`,
which are for a thread: the node takes `changes()` on its event loop, has a thread `store` them, one such call at a
time, and then says `stored(changes)`; what failed, or changed meanwhile, is among the next changes. Positions are not
durable before somebody flushes the store; epochs are when `store` returns, and only then may their owner be named.

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
    """When a source that has no link begins to expire (AMQP part 3, 3.5.6), in the order in which things end."""

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
        """That of a source. Raises LinkFault."""
        for policy in cls:
            if policy.symbol == symbol:
                return policy
        allowed = ", ".join(policy.symbol for policy in cls)
        raise LinkFault(INVALID_FIELD, f"expiry-policy: {show(symbol)} given, allowed: {allowed}")


@dataclass(slots=True)
class Remembered:
    """The source of a receiver, which may outlive its link."""

    container: str
    link: str
    position: Position
    expiry: Expiry
    timeout_s: int
    is_durable: bool
    """Whether it outlives the server too."""
    source: bytes
    """The source itself, encoded: what a receiver that comes back without one is given."""
    is_loaded: bool = False
    """Whether it was stored, without what waited for its outcome."""
    expires_at: int | None = None
    """In ms since 1970; None while it has a link, or something else that keeps it."""
    left_at: int | None = None
    """When its last link ended, in ms since 1970; None while it has one."""
    down_ms: int = 0
    """How long no server had run until then, in all: see `downtime`."""


class Change(NamedTuple):
    """An entry of the store that is to be put; or deleted, if `value` is None."""

    key: str
    value: dict[str, object] | None


class GroupRecord(NamedTuple):
    """What is remembered of one consumer group, by partition."""

    afters: dict[int, int]
    """Everything up to this number is done with."""
    epochs: dict[int, int]
    """Those that are not 0."""


class Positions:
    """What one incarnation of a log remembers of its receivers."""

    def __init__(self, termini_max: int, abandoned_ms: int | None = None, down_ms: int = 0) -> None:
        """At most so many receivers are remembered, and as many positions of groups: one for each partition read.

        `abandoned_ms` is how long a source is remembered that has no link; None: as long as it asks for. Time in which
        no server runs does not count: `down_ms` is the sum of it so far.
        """
        self._termini_max, self._abandoned_ms, self._down_ms = termini_max, abandoned_ms, down_ms
        self._remembered: dict[tuple[str, str], Remembered] = {}
        self._groups: dict[tuple[str, int], Position] = {}
        self._epochs: dict[tuple[str, int], int] = {}
        self._sources_bytes = 0
        self._share: Share | None = None
        """What the sources take is counted there, if they are counted at all."""
        self._stored: dict[str, dict[str, object]] = {}
        """By key, what the store has, as far as it is known."""

    # Sources

    def count_in(self, share: Share) -> None:
        """Count what sources take in that share of the memory from now on, on its event loop."""
        self._share = share
        share.hold(self._sources_bytes)

    def forget_all(self) -> None:
        """The log is served no more: nothing of it is counted."""
        if self._share is not None:
            self._share.give(self._sources_bytes)
            self._share.close()
            self._share = None

    def remembered(self, container: str, link: str) -> Remembered | None:
        """The source of that receiver, if it is remembered."""
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
        """The source of a receiver that attaches: the one that is remembered, or one that begins after that number.

        With `is_another` it begins there in any case, and takes the place of the one that is remembered.
        What it asks for (expiry, timeout, durability, the source itself) is taken anew. Raises LinkFault: names that
        cannot be kept, too many sources, or too large ones.
        """
        known = self._remembered.get((container, link))
        remembered = known
        if remembered is None:
            _check_name("container-id", container)
            _check_name("link name", link)
            if len(self._remembered) >= self._termini_max:
                problem = f"this log remembers {len(self._remembered)} receivers, and no more are allowed"
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

        To be called for each of the three as it ends, but not after another link has taken the source over. It is
        forgotten when its time comes; if that is now, at once.
        """
        remembered.position.detached()
        if remembered.left_at is None:
            remembered.left_at, remembered.down_ms = now_ms, self._down_ms
        if remembered.expires_at is None and remembered.expiry <= what:
            remembered.expires_at = now_ms + 1000 * remembered.timeout_s
            if not remembered.timeout_s:
                self.closed(remembered)

    def durable(self) -> list[Remembered]:
        """All sources that are remembered, attached or not."""
        return list(self._remembered.values())

    def all(self) -> Iterator[Position]:
        """Every position that is remembered: of sources, and of groups."""
        yield from (remembered.position for remembered in self._remembered.values())
        yield from self._groups.values()

    def closed(self, remembered: Remembered) -> None:
        """The receiver has closed the link: its source is forgotten."""
        self._forget((remembered.container, remembered.link))

    def expire(self, now_ms: int) -> None:
        """Forget the sources whose time has come."""
        for key, remembered in list(self._remembered.items()):
            at = self.expires_at(remembered)
            if at is not None and at <= now_ms:
                self._forget(key)

    def expires_at(self, remembered: Remembered) -> int | None:
        """When a source expires, or has been without a link for too long, in ms since 1970; None: at no set time."""
        if self._abandoned_ms is None or remembered.left_at is None:
            return remembered.expires_at
        abandoned_at = remembered.left_at + self._abandoned_ms + self._down_ms - remembered.down_ms
        return abandoned_at if remembered.expires_at is None else min(remembered.expires_at, abandoned_at)

    def expires_next(self) -> int | None:
        """When `expire` has something to do next, in ms since 1970."""
        return min(
            (at for each in self._remembered.values() if (at := self.expires_at(each)) is not None), default=None
        )

    def _forget(self, key: tuple[str, str]) -> None:
        if (remembered := self._remembered.pop(key, None)) is not None:
            self._count(-len(remembered.source))

    def _count(self, more_bytes: int) -> None:
        """The sources that are remembered take so much more, or less. Raises LinkFault if there is no room for it."""
        if self._share is not None:
            if more_bytes <= 0:
                self._share.give(-more_bytes)
            elif not self._share.take(more_bytes):
                problem = f"there is no memory to remember another source of {more_bytes} bytes"
                held = f"those of this log take {self._sources_bytes}"
                raise LinkFault(RESOURCE_LIMIT_EXCEEDED, f"{problem}; {held}; try again later")
        self._sources_bytes += more_bytes

    # Groups

    def group_position(self, group: str, partition: int, *, after: int, is_reset: bool = False) -> Position:
        """The position of a consumer group in a partition: where it was left, or one that begins after that number.

        With `is_reset` it begins there in any case. Raises LinkFault: too many.
        """
        position = self._groups.get((group, partition))
        if position is not None and is_reset:
            position = self._groups[group, partition] = Position(after)
        if position is None:
            self._check_group_room(group, partition)
            position = self._groups[group, partition] = Position(after)
        return position

    def _check_group_room(self, group: str, partition: int) -> None:
        """Raises LinkFault where there is no room for one more position. An epoch takes the place of its position."""
        if len(self._groups) + len(self._epochs) < self._termini_max or (group, partition) in self._epochs:
            return
        known = self._groups.keys() | self._epochs.keys()
        if len(known) >= self._termini_max:
            problem = f"this log remembers {len(known)} positions of groups, and no more are allowed"
            raise LinkFault(RESOURCE_LIMIT_EXCEEDED, problem)

    def of_group(self, group: str, partitions: int) -> GroupRecord:
        """What is remembered of one group, in a log of so many partitions; no look at any other group."""
        keys = [(group, partition) for partition in range(partitions)]
        afters = {key[1]: found.after for key in keys if (found := self._groups.get(key)) is not None}
        return GroupRecord(afters, {key[1]: epoch for key in keys if (epoch := self._epochs.get(key))})

    def groups(self) -> dict[tuple[str, int], int]:
        """By group and partition: after which number it goes on."""
        return {key: position.after for key, position in self._groups.items()}

    def forget_group(self, group: str) -> None:
        """Forget the positions of a consumer group; its next receiver begins as one of a new group."""
        self._groups = {key: position for key, position in self._groups.items() if key[0] != group}

    @property
    def epochs(self) -> dict[tuple[str, int], int]:
        """By group and partition, those that are not zero: what `Groups` begins with."""
        return dict(self._epochs)

    def record_epoch(self, group: str, partition: int, epoch: int) -> None:
        """The epoch that `groups.RecordEpoch` names; it is durable when it is stored."""
        if epoch:
            self._epochs[group, partition] = epoch
        else:
            self._epochs.pop((group, partition), None)

    # The store

    def changes(self) -> list[Change]:
        """What differs from the store; each time all of it, until `stored` is called."""
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
    """Write changes; blocks. With `flushes` they, and all that was stored before, outlast a loss of power.

    Raises what the store raises: then say nothing of them to `stored`.
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
    """What the store has of one incarnation of a log; blocks.

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
            source = b64decode(value.get("source", ""))  # 0.1.0 stored none
            at = Position(value["after"])
            remembered = Remembered(first, second, at, expiry, value["timeout_s"], True, source, is_loaded=True)
            remembered.expires_at = value["expires_at"]
            remembered.left_at, remembered.down_ms = value.get("left_at"), value.get("down_ms", 0)  # 0.1 stored none
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
    """What the store has of one group of a log of so many partitions, by its keys; blocks."""
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
        problem = f"1 to {NAME_CHARS_MAX} printable characters are needed where it is to be remembered"
        raise LinkFault(INVALID_FIELD, f"{what}: {problem}, {show(name)} given")
