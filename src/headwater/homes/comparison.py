"""Compares a copy with its home, log by log: the heads, and the number of frames, bytes and events.

A head has the checksum of its log's last frame, and checksums are chained. So equal heads mean equal frames, provided
that the rows of the frames exist; these are counted.
"""

from __future__ import annotations

from typing import NamedTuple

from ..core.errors import StorageUnavailable
from ..storage.catalog.directories import LOGS, TRASH_KIND
from ..storage.catalog.identity import known_identity
from ..storage.frames.frame import Frame
from ..storage.home.replicated_log import ReplicatedLog
from ..storage.state.journal import NAME
from .postgres.extents import NOTHING, Extent
from .postgres.home import PostgresHome
from .stopped_copy import StoppedCopy


class Compared(NamedTuple):
    """A log that is equal in a copy and in its home."""

    name: str
    last: int
    """The number of its last event."""
    extent: Extent


def compare(copy: StoppedCopy) -> list[Compared]:
    """Compare all logs of a copy, and its journal, with the home. Returns the compared logs.

    Raises StorageUnavailable if a log differs, with the difference; StorageCorrupted.
    """
    heads, frames = copy.home.heads(), copy.frames()
    known = {each.key for each in frames.values()} | _deleted(copy)
    if lacking := [key for key, head in heads.items() if key not in known and head.crc]:
        raise StorageUnavailable(f"the home contains a log that is missing from this copy ({lacking[0]})")
    compared = []
    for name, each in frames.items():
        head = heads.get(each.key)
        here, there = (each.head, each.last_crc), None if head is None else head[:2]
        if here != there:
            raise _differs(
                name, f"ends with event {each.head}", f"ends with {'nothing' if there is None else there[0]}"
            )
        retained = copy.engine.state.journal.first if name == NAME else copy.engine.open(name).first_retained
        after = max(retained, _oldest(copy.home, each)) - 1
        mine, homes = _extent(each, after), copy.home.extent(each.key, after)
        if mine != homes:
            raise _differs(name, _told(mine), _told(homes))
        compared.append(Compared(name, each.last, mine))
    return compared


def _deleted(copy: StoppedCopy) -> set[str]:
    """The keys of deleted logs, which the home may not have dropped yet."""
    state, logs = copy.engine.state, copy.engine.directory / LOGS
    known = [known_identity(state, logs / directory) for directory, _ in state.items(TRASH_KIND)]
    return {each.segments_id for each in known if each is not None}


def _oldest(home: PostgresHome, frames: ReplicatedLog) -> int:
    """The first number of the home's oldest frame; 0 if it has no frame."""
    content = next(home.frames(frames.key, 0, frames.head), None)
    return 0 if content is None else int(Frame(memoryview(content), 0, frames.crc_seed).first)


def _extent(frames: ReplicatedLog, after: int) -> Extent:
    found = NOTHING
    for frame in frames.read(after):
        found = found.plus(1, frame.length, frame.count)
    return found


def _differs(name: str, here: str, there: str) -> StorageUnavailable:
    return StorageUnavailable(f"log {name}: this copy {here}, but its home {there}")


def _told(extent: Extent) -> str:
    return f"contains {extent.events} events in {extent.frames} frames ({extent.bytes} bytes)"
