"""The small versioned state stored next to the logs: consumers, users, settings, and what components must remember."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

USER_KIND = "user"
"""The kind of the entries for users. Every store remembers whether it ever had one."""


class StateEntry(NamedTuple):
    """A value and its version, which counts from 1; 0 stands for a missing entry."""

    value: bytes
    version: int


class StateStore(Protocol):
    """A small durable map (kind, key) -> value with versioned compare-and-set."""

    def get(self, kind: str, key: str) -> StateEntry | None:
        """The entry, or None."""

    def put(
        self, kind: str, key: str, value: bytes, expected_version: int | None = None, *, is_durable: bool = True
    ) -> int:
        """Set the entry and return its new version. `expected_version` 0 = it must not exist; None = any version.

        If an entry is not put durably, a power loss (not a crash) before `flush` may restore the older value.

        Raises StateConflict.
        """

    def delete(self, kind: str, key: str, expected_version: int | None = None) -> bool:
        """Remove the entry; returns whether it existed. Raises StateConflict."""

    def delete_all(self, kind: str, keys: Iterable[str]) -> int:
        """Remove the entries with these keys as one change, all or none; returns how many existed."""

    def flush(self) -> None:
        """Everything put before is durable when this returns."""

    def items(self, kind: str, prefix: str = "") -> Iterator[tuple[str, StateEntry]]:
        """All entries of a kind whose key has that prefix, in order of key."""

    def had_users(self) -> bool:
        """Whether an entry of USER_KIND ever existed, or users were kept elsewhere. If so, access requires a user.

        It stays true when the last user is removed, until `keep_had_users` changes it.
        """

    def keep_had_users(self, had_users: bool) -> None:
        """Remember that there are users elsewhere, or deliberately forget that there ever were any. Durable."""


def kinds_of_log(incarnation: str) -> tuple[str, str, str, str]:
    """The kinds of entries that belong to one incarnation of a log: deleted with the log and carried over by a restore.

    They are registered consumers, what front ends remember of readers (each under keys that begin with its name), how
    far the log is trimmed, and the state of exactly-once writers whose frames may be gone.
    """
    return f"consumer/{incarnation}", f"reader/{incarnation}", f"trimmed/{incarnation}", f"writer/{incarnation}"
