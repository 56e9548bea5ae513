"""Many logs by name (`LogStore`), and the small versioned state beside them (`StateStore`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from .log import LocalLog
from .settings import LogSettings


class LogStore(Protocol):
    """The logs of one server."""

    def create(self, name: str, settings: LogSettings | None = None) -> LocalLog:
        """Create a log, or answer the one of that name if its settings are the same (None: whatever they are).

        Raises InvalidLogName, LogExists.
        """

    def open(self, name: str) -> LocalLog:
        """The log of that name; logs open lazily. Raises LogNotFound, StorageCorrupted."""

    def names(self) -> list[str]:
        """All logs, in order of name."""

    def opened(self) -> Sequence[LocalLog]:
        """The logs that are open at the moment, in order of name; opens none."""

    def change(self, name: str, settings: LogSettings) -> LocalLog:
        """Give a log new settings. Raises LogNotFound, InvalidSettings."""

    def delete(self, name: str) -> None:
        """Delete a log and all its events. A log of that name made later goes on above its numbers.

        Raises LogNotFound.
        """

    @property
    def state(self) -> StateStore:
        """Consumers, users, subscriptions: whatever front ends must remember."""

    def close(self) -> None:
        """Close every log in order: what was acknowledged is on disk, what was not is refused with Closed."""


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

    def flush(self) -> None:
        """Everything put before this is durable when it returns."""

    def items(self, kind: str, prefix: str = "") -> Iterator[tuple[str, StateEntry]]:
        """All entries of a kind whose key starts so, in order of key."""
