"""The trim point of a log, with two witnesses: META and the state. Nothing is unlinked unless both agree.

The state is written first. So it may be ahead of META after an interrupted trim that was never acknowledged; if META is
ahead of the state, one of them is damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from ...core.errors import StorageCorrupted
from ...core.state import StateStore, kinds_of_log
from ...formats.decoders import json_decoder
from ..index.builder import Sealed
from ..segments.meta import FORMAT_CHECKED, Meta, read_meta
from ..segments.recovery import highest_kept
from ..segments.segment import Segment

RESTORE = "restore a backup (headwater restore)"


class Trimmed(msgspec.Struct, frozen=True):
    """The two numbers that bound what may be unlinked."""

    first_retained: int
    """Events below this number may be unlinked."""
    known_from: int
    """The history of events below this number may be unlinked too."""


def trimmed(meta: Meta) -> Trimmed:
    """The trim point in META."""
    return Trimmed(meta.first_retained, meta.known_from)


def bear_witness(state: StateStore, incarnation: str, said: Trimmed) -> None:
    """Durably record the trim point in the state, with everything put before it. Call it before META is written."""
    state.put(_kind(incarnation), "", msgspec.json.encode(said))


def check_witness(state: StateStore, meta: Meta, directory: Path) -> None:
    """Raises StorageCorrupted if META's trim point is ahead of the state's."""
    witness = trimmed_in(state, meta)
    for name in Trimmed.__struct_fields__:
        said, borne_out = getattr(meta, name), getattr(witness, name)
        if said > borne_out:
            raise StorageCorrupted(
                str(directory),
                f"{name} is {said} in META.json, but {borne_out} in the state: one of them was changed",
                "put back the state that belongs to this log, or restore a backup (headwater restore), or accept the "
                f"loss of the events that META.json calls trimmed (headwater check --accept-loss {meta.name})",
            )


def take_over(state: StateStore, meta: Meta) -> None:
    """Record the trim point in the state for a log of a format without it. Call it before META is written."""
    if meta.format < FORMAT_CHECKED and trimmed(meta) != _never(meta):
        bear_witness(state, meta.incarnation, trimmed(meta))


def accept_witness(state: StateStore, meta: Meta, directory: Path) -> None:
    """Make disagreeing witnesses agree: everything trimmed according to META is given up."""
    try:
        check_witness(state, meta, directory)
    except StorageCorrupted:
        bear_witness(state, meta.incarnation, trimmed(meta))


def copy_witness(source: StateStore, target: StateStore, meta: Meta) -> None:
    """Copy a log's trim point from another state."""
    if (entry := source.get(_kind(meta.incarnation), "")) is not None:
        target.put(_kind(meta.incarnation), "", entry.value)


def agreed(directory: Path, state: StateStore, incarnation: str) -> Trimmed:
    """The trim point on which META on disk and the state agree. Raises StorageCorrupted, StorageUnavailable."""
    meta = read_meta(directory)
    if meta.incarnation != incarnation:
        raise StorageCorrupted(str(directory), "META.json belongs to another log", RESTORE)
    check_witness(state, meta, directory)
    return trimmed(meta)


def unused_segments(directory: Path, segments: Sequence[Segment], meta: Meta, below: int) -> list[Segment]:
    """The oldest indexed segments of a log whose events are all below that number.

    The end of a segment is not determined from that segment alone: the next one must begin there, and the headers of
    both must match their names. Raises StorageCorrupted.
    """
    found: list[Segment] = []
    sealed: Sealed | None = None
    for segment, following in pairwise(segments):
        upto = highest_kept(meta.gaps, following.first - 1)
        if max(segment.last, upto) >= below:
            break
        _check_neighbours(segment, following, upto, bytes.fromhex(meta.segments_id))
        sealed = sealed or Sealed(directory)
        if not sealed.has(segment):
            break
        found.append(segment)
    return found


def _check_neighbours(segment: Segment, following: Segment, upto: int, log_id: bytes) -> None:
    for each in (segment, following):
        Segment(each.path, log_id)  # as on disk now: its header must have this log's id and its own first number
    if not upto <= segment.last < following.first:
        raise segment.corrupted(f"it ends with event {segment.last}, but the next segment is {following.path.name}")


def trimmed_in(state: StateStore, meta: Meta) -> Trimmed:
    """The trim point in the state. A log that was never trimmed has none."""
    entry = state.get(_kind(meta.incarnation), "")
    if entry is None:
        return trimmed(meta) if meta.format < FORMAT_CHECKED else _never(meta)
    try:
        return json_decoder(Trimmed).decode(entry.value)
    except ValueError as error:
        raise StorageCorrupted(_kind(meta.incarnation), f"unreadable in the state: {error}", RESTORE) from None


def _never(meta: Meta) -> Trimmed:
    return Trimmed(meta.origin, meta.origin)


def _kind(incarnation: str) -> str:
    return kinds_of_log(incarnation)[2]
