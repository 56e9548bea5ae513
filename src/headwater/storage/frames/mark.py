"""Marks of exactly-once writers (`core.mark`) as frames keep them."""

from __future__ import annotations

import msgspec

from ...core.mark import WriterState


class FrameMark(msgspec.Struct, array_like=True, frozen=True):
    """A mark as a frame keeps it. It says all that is to be known of its writer, so that the newest one suffices."""

    writer: str
    batch: int
    rows: int
    is_last: bool
    index: int
    """The mark's events are those of the frame from this index on, and so many:"""
    count: int
    first: int
    """First and last number of the whole batch so far (0 if it has no events), and how many events it has."""
    last: int
    events: int

    @property
    def state(self) -> WriterState:
        """What the log has of the writer with this mark."""
        return WriterState(self.writer, self.batch, self.rows, self.first, self.last, self.events, self.is_last)


def frame_mark(state: WriterState, index: int, count: int) -> FrameMark:
    """What a frame keeps of an append of `count` events, its own from that index on, that left its writer so."""
    return FrameMark(
        state.writer, state.batch, state.rows, state.is_complete, index, count, state.first, state.last, state.events
    )
