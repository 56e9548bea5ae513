"""How far a log is trimmed, by two witnesses: META, and the state. Nothing is unlinked on the word of one of them.

The state is written first. So it may be ahead of META, where a trim was interrupted and never answered; META ahead of
the state is damage of one of the two.
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
    """The two numbers that say what of a log may go."""

    first_retained: int
    """Events below may be unlinked."""
    known_from: int
    """And the history of what is below that."""


def trimmed(meta: Meta) -> Trimmed:
    """What META says."""
    return Trimmed(meta.first_retained, meta.known_from)


def bear_witness(state: StateStore, incarnation: str, said: Trimmed) -> None:
    """Enter the second witness, durably, with all that was put before it. To be done before META is written."""
    state.put(_kind(incarnation), "", msgspec.json.encode(said))


def check_witness(state: StateStore, meta: Meta, directory: Path) -> None:
    """Raises StorageCorrupted if META calls more trimmed than the state does."""
    witness = trimmed_in(state, meta)
    for name in Trimmed.__struct_fields__:
        said, borne_out = getattr(meta, name), getattr(witness, name)
        if said > borne_out:
            raise StorageCorrupted(
                str(directory),
                f"{name} is {said} in META.json, but {borne_out} in the state: one of them is not what was written",
                "put back the state that belongs to this log, or restore a backup (headwater restore), or accept that "
                f"what META.json calls trimmed is gone (headwater check --accept-loss {meta.name})",
            )


def take_over(state: StateStore, meta: Meta) -> None:
    """Enter the second witness for a log of a format that had none. To be done before META is written."""
    if meta.format < FORMAT_CHECKED and trimmed(meta) != _never(meta):
        bear_witness(state, meta.incarnation, trimmed(meta))


def accept_witness(state: StateStore, meta: Meta, directory: Path) -> None:
    """Make the witnesses agree where they do not: what META calls trimmed is given up."""
    try:
        check_witness(state, meta, directory)
    except StorageCorrupted:
        bear_witness(state, meta.incarnation, trimmed(meta))


def copy_witness(source: StateStore, target: StateStore, meta: Meta) -> None:
    """Take over what another state says of a log."""
    if (entry := source.get(_kind(meta.incarnation), "")) is not None:
        target.put(_kind(meta.incarnation), "", entry.value)


def agreed(directory: Path, state: StateStore, incarnation: str) -> Trimmed:
    """How far META, as it stands on disk now, and the state agree. Raises StorageCorrupted, StorageUnavailable."""
    meta = read_meta(directory)
    if meta.incarnation != incarnation:
        raise StorageCorrupted(str(directory), "META.json is that of another log", RESTORE)
    check_witness(state, meta, directory)
    return trimmed(meta)


def unused_segments(directory: Path, segments: Sequence[Segment], meta: Meta, below: int) -> list[Segment]:
    """The oldest segments of a log of which every event is numbered below that, and which are indexed.

    What a segment ends with is not taken from it alone: the one after it says where it begins, and both are who they
    say in their names. Raises StorageCorrupted.
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
        Segment(each.path, log_id)  # as it is on disk now: its header must name this log, and its own first number
    if not upto <= segment.last < following.first:
        raise segment.corrupted(f"it ends with event {segment.last}, and {following.path.name} comes behind it")


def trimmed_in(state: StateStore, meta: Meta) -> Trimmed:
    """What the state says; of a log that was never trimmed it says nothing."""
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
