"""Compares the logs in the state with the directories below `logs/`.

A log that the state has forgotten would begin again at 1, next to its events. A log whose directory is missing would
look as if it had been damaged by accident. Both are stopped, each with a remedy, and the other logs continue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from ...core.errors import EventLogError, LogExists, StorageCorrupted
from ...core.settings import LOG_NAME, SYSTEM_LOG, LogSettings
from ...core.state import StateStore
from ...formats.decoders import json_decoder
from ..segments.meta import FRAMES, META_NAME, read_meta

LOGS = "logs"
LOG_KIND, FLOOR_KIND, TRASH_KIND = "log", "log-floor", "log-trash"

EVERY_LOG = "*"
"""The key of the floor for every log created after a restore: logs lost with the old disk may have issued lower
numbers."""
RESTORE_JUMP = 10**12
"""A log with unknown numbers continues at the next multiple: years of events at any rate, and room for a million
such jumps."""

_INCARNATION = re.compile("[0-9a-f]{8}")
"""The end of directory names: the first digits of the incarnation."""


class LogEntry(msgspec.Struct):
    """The state's entry of a log."""

    directory: str
    settings: LogSettings


def known_logs(state: StateStore) -> dict[str, LogEntry]:
    """The logs in the state, by name."""
    return {name: json_decoder(LogEntry).decode(entry.value) for name, entry in state.items(LOG_KIND)}


def unknown_directories(directory: Path, state: StateStore) -> dict[str, list[Path]]:
    """The log directories that the state lists neither as logs nor as trash, by the names that they may have."""
    known = {entry.directory for entry in known_logs(state).values()} | {name for name, _ in state.items(TRASH_KIND)}
    found: dict[str, list[Path]] = {}
    for path in sorted((directory / LOGS).glob("*")):
        if path.name not in known and is_of_a_log(path):
            for name in _names(path):
                found.setdefault(name, []).append(path)
    return found


def stopped_logs(directory: Path, state: StateStore) -> dict[str, StorageCorrupted]:
    """The logs that cannot be opened because state and directories disagree, with the remedies."""
    unknown, known = unknown_directories(directory, state), known_logs(state)
    stopped = {name: _forgotten(name, paths) for name, paths in unknown.items() if name not in known}
    missing = {name: entry for name, entry in known.items() if not (directory / LOGS / entry.directory).is_dir()}
    return stopped | {name: missing_directory(directory, name, entry, unknown) for name, entry in missing.items()}


def left_over(directory: Path, state: StateStore) -> list[Path]:
    """Unknown directories of logs that the state has at another path: they stop nothing."""
    known = known_logs(state)
    return [path for name, paths in unknown_directories(directory, state).items() if name in known for path in paths]


def missing_directory(
    directory: Path, name: str, entry: LogEntry, unknown: Mapping[str, Iterable[Path]]
) -> StorageCorrupted:
    """The error for a log in the state whose directory is missing."""
    remedy = (
        f"put it back, restore a backup (headwater restore), or give up the log, so that a new log can use its name "
        f"(headwater check --accept-loss {name})"
    )
    if others := [path.name for path in unknown.get(name, ())]:
        remedy += f"; {' and '.join(others)} may be its directory: headwater check --adopt {name}"
    return StorageCorrupted(str(directory / LOGS / entry.directory), f"the directory of log {name} is missing", remedy)


def adopt(directory: Path, state: StateStore, name: str) -> Path:
    """Add a log to the state again from its directory; returns the directory.

    It keeps its settings from the state, or gets the defaults, which drop nothing. Raises StorageCorrupted (there is no
    such directory, or more than one, or it cannot be identified), LogExists.
    """
    entry = known_logs(state).get(name)
    if entry is not None and (directory / LOGS / entry.directory).is_dir():
        raise LogExists(name)
    unknown = unknown_directories(directory, state)
    found = unknown.get(name, [])
    if not found:
        raise _not_to_adopt(directory, name, sorted(set(unknown) & set(stopped_logs(directory, state))))
    if len(found) > 1:
        what = f"{', '.join(path.name for path in found)} may be the directory of log {name}"
        raise StorageCorrupted(str(directory / LOGS), what, "keep the existing one")
    meta = read_meta(found[0])
    if meta.name != name:
        problem = f"it belongs to log {meta.name!r}, as {META_NAME} says, not {name!r}"
        raise StorageCorrupted(str(found[0]), problem, f"headwater check --adopt {meta.name}")
    settings = entry.settings if entry is not None else LogSettings(partitions=meta.partitions)
    state.put(LOG_KIND, name, msgspec.json.encode(LogEntry(found[0].name, settings)))
    return found[0]


def _not_to_adopt(directory: Path, name: str, others: Sequence[str]) -> StorageCorrupted:
    problem = f"no directory belongs to log {name}"
    remedy = f"{', '.join(others)} can be adopted" if others else "every directory is known to the state"
    return StorageCorrupted(str(directory / LOGS), problem, remedy)


def give_up(state: StateStore, name: str) -> int:
    """Forget a log whose directory is gone; returns the number above which a log with that name will begin.

    The log's end is unknown, so this number is above any possible end.
    """
    floors = [int(entry.value) for key in (name, EVERY_LOG) if (entry := state.get(FLOOR_KIND, key))]
    floor = beyond(max(floors, default=0))
    state.put(FLOOR_KIND, name, str(floor).encode())
    state.delete(LOG_KIND, name)
    return floor


def beyond(number: int) -> int:
    """A number above all numbers that can have been issued since `number`."""
    return (number // RESTORE_JUMP + 1) * RESTORE_JUMP


def _forgotten(name: str, paths: list[Path]) -> StorageCorrupted:
    problem = f"the state has no log {name}, but its directory exists; a new log would start at 1 again"
    remedy = (
        f"adopt it, with settings that drop nothing (headwater check --adopt {name}), restore a backup (headwater "
        f"restore), or move the directory away if the log was deleted"
    )
    return StorageCorrupted(", ".join(map(str, paths)), problem, remedy)


def is_of_a_log(path: Path) -> bool:
    """Whether it is not one of the file system's own directories (such as lost+found)."""
    return (path / META_NAME).exists() or (path / FRAMES).is_dir()


def _names(path: Path) -> set[str]:
    """The name in its META, and the name in the directory's name, if that has the form of log directories.

    If META cannot be read, only the second one.
    """
    begins, _, ends = path.name.rpartition(".")
    try:
        names = {read_meta(path).name}
    except EventLogError:  # opening or adopting it raises the error
        names = {begins}
    if _INCARNATION.fullmatch(ends):
        names.add(begins)
    return {name for name in names if LOG_NAME.fullmatch(name) or name == SYSTEM_LOG}
