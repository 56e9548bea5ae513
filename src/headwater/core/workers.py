"""Workers that share the partitions of a log as a named group: the interface between front ends and the group keeper.

A worker is alive while it renews its lease. It holds partitions, each under an epoch higher than all earlier ones; an
acknowledgement under another epoch is fenced. Positions belong to the group and stay when workers leave.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from .errors import ConsumerFenced, InvalidInput, Overloaded
from .limits import _UNFIT, show

NAME_CHARS_MAX = 256
LEASE_MS_MIN, LEASE_MS_MAX = 500, 600_000
WAIT_MS_MAX = 25_000
RETRY_AFTER_S = 5.0
"""The delay after which a worker that found no place should retry."""


class WorkerKey(NamedTuple):
    """One worker of one group. Workers of the same name but different users are distinct."""

    log: str
    group: str
    user: str
    name: str


class HeldPartition(NamedTuple):
    """A partition that a worker holds."""

    partition: int
    epoch: int
    after: int
    """Every event up to this number is processed."""
    is_leaving: bool
    """Whether the worker should release it for another worker after finishing the current work."""


class Holding(NamedTuple):
    """The partitions that a worker holds now."""

    version: int
    """Changes each time anything changes."""
    partitions: list[HeldPartition]


def taken_over(key: WorkerKey, version: int, current: int) -> ConsumerFenced:
    """Another process has taken the worker's name: the previous one gets this error and must stop."""
    error = ConsumerFenced(key.group, key.name, version, current)
    problem = f"another worker named {show(key.name)} has started in group {show(key.group)}; this one is fenced"
    error.args = (problem,)
    return error


def too_many_workers(problem: str) -> Overloaded:
    """There is no place for another worker until one leaves; retry later."""
    error = Overloaded(0, 0, RETRY_AFTER_S)
    error.args = (f"{problem}, which is the maximum; try again in {RETRY_AFTER_S:g} s",)
    return error


class Workers(Protocol):
    """The groups of all logs on one event loop."""

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
        """Renew a worker's lease for `lease_ms` after the answer; a new worker joins its group. Returns what it holds.

        `version` is the last one it received: while nothing changed since, the answer waits for a change, up to
        `wait_ms`. Without one the worker starts: any previous process of that name no longer holds anything and is
        fenced. `begins_earliest` says where a group starts in a partition without a stored position; None means
        according to the log's settings. `peer` is its address, by which places are assigned if there are no logins.
        Raises ConsumerFenced, InvalidInput, Overloaded, LogNotFound, StorageCorrupted.
        """

    async def acknowledge(
        self, key: WorkerKey, partition: int, epoch: int, sequence_number: int, *, gives_up: bool = False
    ) -> HeldPartition:
        """Mark every event up to a number in a partition as processed, durably; with `gives_up` the worker releases it.

        Raises ConsumerFenced if it does not hold the partition under that epoch (any more), InvalidPosition; and the
        errors of the state if it cannot be stored now.
        """

    async def leave(self, key: WorkerKey, version: int | None = None) -> None:
        """The worker ends: its partitions go to others at once. Does nothing if it is unknown.

        `version` is the last one it received. If another process has taken the name by now, that process stays.
        """


def check_worker_key(group: str, name: str) -> None:
    """Raises InvalidInput unless both are 1 to 256 characters without control characters."""
    for what, value in (("group", group), ("worker", name)):
        if not 1 <= len(value) <= NAME_CHARS_MAX or _UNFIT.search(value):
            raise InvalidInput(f"expected 1 to {NAME_CHARS_MAX} characters, got {show(value)}", what)
