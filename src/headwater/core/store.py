"""A store of logs by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from .consumer import Consumer
from .local import LocalLog
from .settings import LogSettings
from .state import StateStore


class LogStore(Protocol):
    """The logs of one server."""

    def create(self, name: str, settings: LogSettings | None = None, *, is_own: bool = False) -> LocalLog:
        """Create a log, or return the existing log of that name if its settings are the same (None for any settings).

        `is_own`: the server creates a log of its own, whose name begins with `$` and which sends no notifications.
        Raises InvalidLogName, LogExists.
        """

    def open(self, name: str) -> LocalLog:
        """The log of that name; logs open lazily. Raises LogNotFound, StorageCorrupted."""

    def names(self) -> list[str]:
        """All logs, in order of name, including those that cannot be opened."""

    def opened(self) -> Sequence[LocalLog]:
        """The logs that are open now, in order of name; opens none."""

    def settings_of(self, name: str) -> LogSettings:
        """The settings of a log; opens none. Raises LogNotFound, StorageCorrupted: the log is stopped."""

    def incarnation_of(self, name: str) -> str:
        """The incarnation of a log; opens none. Raises LogNotFound, StorageCorrupted, StorageUnavailable."""

    def consumers_of(self, name: str) -> Sequence[Consumer]:
        """The registered consumers of a log; opens none. Raises LogNotFound, StorageCorrupted, StorageUnavailable."""

    def change(self, name: str, settings: LogSettings, *, drops_at_most: int | None = 0) -> LocalLog:
        """Change a log's settings. Raises LogNotFound, InvalidSettings, WouldDrop.

        WouldDrop: more than `drops_at_most` events would be dropped now (None for no limit).
        """

    def delete(self, name: str, incarnation: str | None = None) -> None:
        """Delete a log and all its events. A later log of that name continues above its numbers.

        Raises LogNotFound (also if its incarnation differs), InvalidLogName (it is the server's own).
        """

    def unready(self) -> str | None:
        """Why all logs refuse appends at present (such as a full disk); None if they do not."""

    def may_act(self) -> bool:
        """Whether this server may now do the work of a single server: call webhooks, push, assign partitions, trim.

        Callers ask before each such act. If servers share their logs, a server that slept past its lease learns here
        that another may have taken over. The answer may change at any moment.
        """

    def has_lapsed(self) -> bool:
        """Whether this server was the primary until its lease ended: its data may be old, and is not read.

        Callers check this before they read state; for events, the log itself checks it.
        """

    def unavailable(self) -> Mapping[str, str]:
        """Logs that cannot be used, and logs with damage found by a read: by name, reason and remedy; opens none."""

    def troubles(self) -> Sequence[str]:
        """Problems for an operator although logs are served, such as a clock that is not trusted."""

    @property
    def state(self) -> StateStore:
        """Consumers, users, subscriptions and other state that front ends must remember."""

    def close(self) -> None:
        """Close all logs gracefully: acknowledged appends are on disk, all others are refused with Closed."""
