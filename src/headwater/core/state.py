"""The small versioned state beside the logs: consumers, users, settings, whatever a room must remember."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

USER_KIND = "user"
"""The kind of the entries that are users. Every store remembers whether it ever had one."""


class StateEntry(NamedTuple):
    """A value and its version, which counts from 1; 0 stands for an entry that is not there."""

    value: bytes
    version: int


class StateStore(Protocol):
    """A small durable map (kind, key) -> value with versioned compare-and-set."""

    def get(self, kind: str, key: str) -> StateEntry | None:
        """The entry, or None."""

    def put(
        self, kind: str, key: str, value: bytes, expected_version: int | None = None, *, is_durable: bool = True
    ) -> int:
        """Set the entry and answer its new version. `expected_version` 0 = it must be new; None = whatever it is.

        An entry that is not put durably may be the older one after a loss of power (not after a crash), until `flush`.

        Raises StateConflict.
        """

    def delete(self, kind: str, key: str, expected_version: int | None = None) -> bool:
        """Remove the entry; whether it was there. Raises StateConflict."""

    def delete_all(self, kind: str, keys: Iterable[str]) -> int:
        """Remove the entries of these keys as one change, all or none; how many were there."""

    def flush(self) -> None:
        """Everything put before this is durable when it returns."""

    def items(self, kind: str, prefix: str = "") -> Iterator[tuple[str, StateEntry]]:
        """All entries of a kind whose key starts so, in order of key."""

    def had_users(self) -> bool:
        """Whether there ever was an entry of USER_KIND, or users were kept elsewhere, so that nobody is let in without.

        It stays so when the last one is removed, until `keep_had_users` says otherwise.
        """

    def keep_had_users(self, had_users: bool) -> None:
        """Remember that there are users elsewhere, or forget, on purpose, that there ever were any. Durable."""


def kinds_of_log(incarnation: str) -> tuple[str, str, str, str]:
    """The kinds of entries that belong to one incarnation of a log: gone with the log, and carried over by a restore.

    They are registered consumers, what front ends remember of readers (each under keys that begin with its name),
    how far the log is trimmed, and what is to be known of exactly-once writers without the frames that said it.
    """
    return f"consumer/{incarnation}", f"reader/{incarnation}", f"trimmed/{incarnation}", f"writer/{incarnation}"
