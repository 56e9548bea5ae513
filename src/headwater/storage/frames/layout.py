"""The layout of a frame: its header, its directory and the slots of the directory.

`docs/data-file-format.md` shows it.
"""

from __future__ import annotations

import struct
import sys

import msgspec

from ...core.mark import WriterState

assert sys.byteorder == "little", "frames are written as the machine's own little-endian arrays"

MAGIC = b"HWF1"
FORMAT_VERSION = 1
REQUIRED_FEATURES = 0
"""The bits of required features known to this code. A frame with another bit set cannot be read."""
MARKS_FEATURE = 1
"""Bit of the optional features: the frame's CONTROL has marks. Readers of events may ignore them."""


GATED_FEATURE = 2
"""Bit of the optional features: every event passed all checks of `core.limits`, including those of messages. Stricter
checks would need another bit. Readers need not check the events of such a frame."""
OPTIONAL_AT = 20
"""The offset of the optional features in a frame, in bytes."""
COUNT_AT = 24
"""The offset of the number of events in a frame, as u32."""


class Column:
    """Slots of the directory, each the offset of a buffer in the frame; 0 = left out. Plain numbers, for speed."""

    RECORDED_AT = 0  # i64; left out if all equal the header's
    PARTITION = 1  # u16
    ENCODING = 2  # u8
    ID = 3  # offsets i32[n+1], then the bytes in the next slot; likewise all texts and byte strings
    ID_BYTES = 4
    SOURCE = 5
    SOURCE_BYTES = 6
    TYPE = 7
    TYPE_BYTES = 8
    TAG_LISTS = 9  # list offsets i32[n+1] into the tags
    TAG = 10
    TAG_BYTES = 11
    GROUP_KEY = 12
    GROUP_KEY_BYTES = 13
    ATTRIBUTE_LISTS = 14  # map offsets i32[n+1] into names and values
    ATTRIBUTE_NAME = 15
    ATTRIBUTE_NAME_BYTES = 16
    ATTRIBUTE_VALUE = 17
    ATTRIBUTE_VALUE_BYTES = 18
    ENVELOPE = 19
    ENVELOPE_BYTES = 20
    DATA = 21
    DATA_BYTES = 22
    CONTROL = 23  # u32 length, then MessagePack: marks of exactly-once writers, log settings
    ERASED = 24  # bitmap of redacted events
    # 25 to 27 are free


DIRECTORY_SLOTS = 28
LEAD = struct.Struct("<4sI")
"""magic, CRC32C of all that follows"""
HEADER = struct.Struct("<QHHHHIIQQIIQQq")
"""length, version, required, optional features, spare, count, tags, first, epoch, previous crc, spare, durable_upto,
nonce, recorded_at"""
DIRECTORY = struct.Struct(f"<{DIRECTORY_SLOTS}I")
HEADER_BYTES = LEAD.size + HEADER.size + DIRECTORY.size
CONTROL_LENGTH = struct.Struct("<I")


class FrameMark(msgspec.Struct, array_like=True, frozen=True):
    """A mark as stored in a frame. It contains the whole state of its writer, so the newest mark is enough."""

    writer: str
    batch: int
    rows: int
    is_last: bool
    index: int
    """The mark's events are the events of the frame from this index on; their number is:"""
    count: int
    first: int
    """First and last number of the whole batch so far (0 if it has no events), and its number of events."""
    last: int
    events: int

    @property
    def state(self) -> WriterState:
        """The writer's state after this mark."""
        return WriterState(self.writer, self.batch, self.rows, self.first, self.last, self.events, self.is_last)


def frame_mark(state: WriterState, index: int, count: int) -> FrameMark:
    """The mark of an append of `count` events, in the frame from `index` on, that left its writer in `state`."""
    return FrameMark(
        state.writer, state.batch, state.rows, state.is_complete, index, count, state.first, state.last, state.events
    )


class Control(msgspec.Struct, omit_defaults=True):
    """The content of a frame other than events, as MessagePack."""

    marks: tuple[FrameMark, ...] = ()
