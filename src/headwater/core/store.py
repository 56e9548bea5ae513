"""Many logs by name."""

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
        """Create a log, or answer the one of that name if its settings are the same (None: whatever they are).

        `is_own`: the server itself makes a log of its own, whose name begins with `$`, and of which nobody is notified.
        Raises InvalidLogName, LogExists.
        """

    def open(self, name: str) -> LocalLog:
        """The log of that name; logs open lazily. Raises LogNotFound, StorageCorrupted."""

    def names(self) -> list[str]:
        """All logs, in order of name; those too that cannot be opened."""

    def opened(self) -> Sequence[LocalLog]:
        """The logs that are open at the moment, in order of name; opens none."""

    def settings_of(self, name: str) -> LogSettings:
        """The settings of a log; opens none. Raises LogNotFound, StorageCorrupted: it is stopped."""

    def incarnation_of(self, name: str) -> str:
        """The incarnation of a log; opens none. Raises LogNotFound, StorageCorrupted, StorageUnavailable."""

    def consumers_of(self, name: str) -> Sequence[Consumer]:
        """The registered consumers of a log; opens none. Raises LogNotFound, StorageCorrupted, StorageUnavailable."""

    def change(self, name: str, settings: LogSettings, *, drops_at_most: int | None = 0) -> LocalLog:
        """Give a log new settings. Raises LogNotFound, InvalidSettings, and WouldDrop if more events would be dropped
        now than `drops_at_most` (None: however many).
        """

    def delete(self, name: str, incarnation: str | None = None) -> None:
        """Delete a log and all its events. A log of that name made later goes on above its numbers.

        Raises LogNotFound (also where it has another incarnation than that), InvalidLogName (it is the server's own).
        """

    def unready(self) -> str | None:
        """Why appends are refused by all logs at present (the disk is full, say); None if they are not."""

    def may_act(self) -> bool:
        """Whether this server may do now what one server alone does: call webhooks, push, give partitions away, trim.

        It is asked before each such act. Of several servers that share their logs, one that slept through its time
        learns here that another may be doing it by now. It can be so for a moment only.
        """

    def unavailable(self) -> Mapping[str, str]:
        """Logs that cannot be used, and logs in which a read found damage: by name, why and what to do; opens none."""

    def troubles(self) -> Sequence[str]:
        """What an operator should look at, though logs are served: a clock that is not believed, say."""

    @property
    def state(self) -> StateStore:
        """Consumers, users, subscriptions: whatever front ends must remember."""

    def close(self) -> None:
        """Close every log in order: what was acknowledged is on disk, what was not is refused with Closed."""
