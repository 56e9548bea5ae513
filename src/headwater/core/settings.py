"""A log's settings. `partitions` and `partition_by` are fixed at creation; the rest may change later."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import InvalidLogName, InvalidSettings
from .limits import APPEND_BYTES_MAX, PARTITIONS_MAX, check_tag_key, show

LOG_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


EARLIEST, LATEST = "earliest", "latest"
"""Where a receiver may start: with the first retained event, or with events appended from now on."""
SYSTEM_LOG = "$system"
"""The log in which the server keeps its notifications (management.history). Only the server creates it and appends."""


def is_own(name: str) -> bool:
    """Whether the name is reserved for the server's own logs."""
    return name.startswith("$")


def refuse_own(name: str) -> None:
    """Raises InvalidLogName if the name is reserved for the server's own logs."""
    if is_own(name):
        raise InvalidLogName(f"{show(name)} is reserved for the server", "name")


def check_log_name(name: str, *, is_own: bool = False) -> str:
    """Returns the name if it is valid for a log. Raises InvalidLogName. Names that start with `$` are the server's own.

    With `is_own` it must be one of those; SYSTEM_LOG is the only one.
    """
    if is_own:
        assert name == SYSTEM_LOG, name
    elif not isinstance(name, str) or not LOG_NAME.fullmatch(name):
        why = "; names with $ are reserved for the server" if isinstance(name, str) and name.startswith("$") else ""
        raise InvalidLogName(f"{show(name)} does not match {LOG_NAME.pattern}{why}", "name")
    return name


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What a log retains and accepts.

    Retention never passes a registered reliable consumer. With none of the three retention settings, everything is kept
    forever.
    """

    partitions: int = 1
    """Number of partitions, from 1 to 1024; fixed at creation."""
    partition_by: str = ""
    """How events without a group key are assigned to partitions: "" (round robin per call), "source", "subject", or
    "tag:KEY". Fixed at creation."""
    retention_ms: int | None = None
    """Events older than this may be trimmed."""
    retention_bytes: int | None = None
    """The oldest segments may be trimmed while the events use more than this in total."""
    retention_until_acknowledged: bool = False
    """Events that every registered consumer has acknowledged may be trimmed; without consumers, none."""
    event_bytes_max: int = 1024 * 1024
    """The largest event accepted, data and envelope together."""
    id_horizon: int | None = None
    """Ids are unique among this many newest events; None = among all retained ones. A trim forgets ids."""
    keeps_history: bool = True
    """Whether conditions stay exact over trimmed events (their postings are kept)."""
    consumer_age_ms_max: int | None = None
    """A consumer that is silent for this long is unregistered; None = never."""
    default_start: str = LATEST
    """Where a receiver starts that names no position and has no stored one: "latest" or "earliest"."""

    def __post_init__(self) -> None:
        _between("partitions", self.partitions, 1, PARTITIONS_MAX)
        _between("event_bytes_max", self.event_bytes_max, 1024, APPEND_BYTES_MAX)
        for name in ("retention_ms", "retention_bytes", "id_horizon", "consumer_age_ms_max"):
            if (value := getattr(self, name)) is not None:
                _between(name, value, 1, 10**18)
        for name in ("retention_until_acknowledged", "keeps_history"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidSettings(f"expected true or false, got {getattr(self, name)!r}", name)
        kind, _, key = str(self.partition_by).partition(":")
        if self.partition_by not in ("", "source", "subject") and (kind != "tag" or check_tag_key(key)):
            allowed = 'the empty string, "source", "subject" or "tag:KEY"'
            raise InvalidSettings(f"expected {allowed}, got {self.partition_by!r}", "partition_by")

        if self.default_start not in (EARLIEST, LATEST):
            raise InvalidSettings(f'expected "latest" or "earliest", got {self.default_start!r}', "default_start")

    def check_change(self, new: LogSettings) -> None:
        """Raises InvalidSettings if `new` changes a setting that is fixed at creation."""
        for name in ("partitions", "partition_by"):
            old_value, new_value = getattr(self, name), getattr(new, name)
            if old_value != new_value:
                raise InvalidSettings(f"cannot change after creation: expected {old_value!r}, got {new_value!r}", name)


def _between(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidSettings(f"expected a whole number from {low} to {high}, got {value!r}", name)
