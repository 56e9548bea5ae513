"""Where what is in a frame: its header, its directory and the slots of that. `docs/data-file-format.md` shows it."""

from __future__ import annotations

import struct
import sys

import msgspec

from ...core.mark import WriterState

assert sys.byteorder == "little", "frames are written as the machine's own little-endian arrays"

MAGIC = b"HWF1"
FORMAT_VERSION = 1
REQUIRED_FEATURES = 0
"""Bits of required features that this code knows. A frame with another bit set cannot be read."""
MARKS_FEATURE = 1
"""Bit of the optional features: the frame's CONTROL has marks. Who only reads events may ignore them."""


GATED_FEATURE = 2
"""Bit of the optional features: every event passed all checks of `core.limits`, also those of messages. If the checks
ever become stricter, that takes another bit. Readers need not check the events of such a frame."""
OPTIONAL_AT = 20
"""Where the optional features are, in bytes from the beginning of a frame."""


class Column:
    """Slots of the directory: where each buffer starts in the frame; 0 = left out. Plain numbers: they are hot."""

    RECORDED_AT = 0  # i64; left out where all are the header's
    PARTITION = 1  # u16
    ENCODING = 2  # u8
    ID = 3  # offsets i32[n+1], then the bytes in the next slot; so for all texts and byte strings
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


class Control(msgspec.Struct, omit_defaults=True):
    """What a frame has besides events, as MessagePack."""

    marks: tuple[FrameMark, ...] = ()
