"""Workers that share the partitions of a log as a named group: what a front end asks of whoever keeps the groups.

A worker is alive as long as it says so within its lease. It holds partitions, each under an epoch that is higher than
any before; an acknowledgement under another epoch is fenced. Positions are the group's, and stay when workers go.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from .errors import ConsumerFenced, InvalidInput, Overloaded
from .limits import _UNFIT, show

NAME_CHARS_MAX = 256
LEASE_MS_MIN, LEASE_MS_MAX = 500, 600_000
WAIT_MS_MAX = 25_000
RETRY_AFTER_S = 5.0
"""When whoever found no place is to try again."""


class WorkerKey(NamedTuple):
    """One worker of one group. Two users' workers of the same name are two."""

    log: str
    group: str
    user: str
    name: str


class HeldPartition(NamedTuple):
    """A partition that a worker holds."""

    partition: int
    epoch: int
    after: int
    """Everything up to this number is done with."""
    is_leaving: bool
    """Whether it is to be given up, for another worker, once what was begun is done."""


class Holding(NamedTuple):
    """What a worker holds now."""

    version: int
    """Another one each time that something changes."""
    partitions: list[HeldPartition]


def taken_over(key: WorkerKey, version: int, current: int) -> ConsumerFenced:
    """Another process has begun under the worker's name: whoever had it before is told so, and works no more."""
    error = ConsumerFenced(key.group, key.name, version, current)
    problem = f"another worker of the name {show(key.name)} has begun in group {show(key.group)}; this one is fenced"
    error.args = (problem,)
    return error


def too_many_workers(problem: str) -> Overloaded:
    """There is no place for one more worker until another one leaves; to be tried again."""
    error = Overloaded(0, 0, RETRY_AFTER_S)
    error.args = (f"{problem}, and no more are allowed; try again in {RETRY_AFTER_S:g} s",)
    return error


class Workers(Protocol):
    """The groups of all logs, on one event loop."""

    async def beat(
        self,
        key: WorkerKey,
        *,
        lease_ms: int,
        wait_ms: int = 0,
        version: int | None = None,
        begins_earliest: bool | None = None,
        peer: str = "",
    ) -> Holding:
        """The worker is alive, and for `lease_ms` after the answer; a new one joins its group. What it holds.

        `version` is the last one that it was told: where it still holds the same, the answer waits for a change, up to
        `wait_ms`. Without one it begins: whoever had its name before holds nothing any more, and is fenced.
        `begins_earliest` says where a group begins that has no position in a partition yet; None as the log's settings
        have it. `peer` is its address, by which places are dealt where nobody logs in.
        Raises ConsumerFenced, InvalidInput, Overloaded, LogNotFound, StorageCorrupted.
        """

    async def acknowledge(
        self, key: WorkerKey, partition: int, epoch: int, sequence_number: int, *, gives_up: bool = False
    ) -> HeldPartition:
        """Everything up to a number is done with in a partition, durably; with `gives_up` the worker holds it no more.

        Raises ConsumerFenced where it does not hold the partition under that epoch (any more), InvalidPosition; and
        what the state raises where it cannot be stored now.
        """

    async def leave(self, key: WorkerKey, version: int | None = None) -> None:
        """The worker ends: its partitions are others' at once. Does nothing where it is not known.

        `version` is the last one that it was told: where another process has its name by now, that one stays.
        """


def check_worker_key(group: str, name: str) -> None:
    """Raises InvalidInput unless both are 1 to 256 characters without control characters."""
    for what, value in (("group", group), ("worker", name)):
        if not 1 <= len(value) <= NAME_CHARS_MAX or _UNFIT.search(value):
            raise InvalidInput(f"1 to {NAME_CHARS_MAX} characters expected, {show(value)} given", what)
