"""Runs of transfers: consecutive whole messages from one sender, with heads of the same form.

Such heads differ only in the delivery-id, which counts up, and in the tag, so they are compared, not parsed. That takes
a third of the time of `wire`, which reads all other transfers and would produce the same result for a run."""

from __future__ import annotations

from itertools import product
from struct import Struct
from typing import Any, Final

from ...speedups import IS_NATIVE

if IS_NATIVE:
    from ...speedups._native import transfers as usual_transfers

USUAL_TRANSFER: Final = b"\x00\x53\x14\xc0"
"""How the body of a transfer frame begins if it can be part of a run."""
TAG_BYTES_MAX: Final = 32
_LEAD_AT: Final = 4
"""The head of a frame consists of its size, a lead that ends with the constructor of the delivery-id, that id, the
constructor and length of the tag, the tag, and an ending."""
_ID_AND_MARK_BYTES: Final = 6
_UINT: Final = 0x70
_TAG: Final = 0xA0


class TransferRun:
    """Whole deliveries on one link with consecutive ids. Either all or none are settled; they have format 0 and no
    state.
    """

    __slots__ = ("bytes", "end", "first", "is_settled", "payloads", "tags")

    def __init__(self, first: int, is_settled: bool, payloads: list[bytes], tags: list[bytes], end: int) -> None:
        self.first = first
        """The first delivery-id."""
        self.is_settled = is_settled
        self.payloads = payloads
        self.tags = tags
        self.end = end
        """Where the next frame begins in the buffer."""
        self.bytes = sum([len(payload) for payload in payloads])
        """The total size of the messages."""

    @property
    def last(self) -> int:
        """The last delivery-id."""
        return self.first + len(self.payloads) - 1


def handle_of(buffer: bytes, at: int) -> int:
    """The handle of a usual transfer, whose frame begins at `at`; -1 if the frame cannot be part of a run."""
    if len(buffer) - at < 24 or buffer[at + 4] != 2 or buffer[at + 5] != 0:
        return -1
    form = buffer[at + 14]
    if form == 0x43:
        return 0
    if form == 0x52:
        return buffer[at + 15]
    return int.from_bytes(buffer[at + 15 : at + 19], "big") if form == _UINT else -1


def read_run(
    buffer: bytes, at: int, frame_bytes_max: int, message_bytes_max: int, count_max: int
) -> TransferRun | None:
    """The run that begins with the frame at `at`, which `handle_of` recognized; None if there is none.

    It ends before a frame that is truncated, larger than those bytes, of another form, or not the next id.
    """
    length = len(buffer)
    form = buffer[at + 14]
    id_at = at + (15 if form == 0x43 else 16 if form == 0x52 else 19)
    stop = at + 13 + buffer[at + 12]
    if stop > length or id_at + 7 > length or buffer[id_at] != _UINT or buffer[id_at + 5] != _TAG:
        return None
    tag_bytes = buffer[id_at + 6]
    ending_at = id_at + 7 + tag_bytes
    known = _ENDINGS.get(buffer[ending_at:stop])
    if known is None or known[0] != buffer[at + 13] or tag_bytes > TAG_BYTES_MAX:
        return None
    payloads, tags, end = transfers(
        buffer, at, id_at - at + 1, tag_bytes, stop - at, min(frame_bytes_max, stop - at + message_bytes_max), count_max
    )
    return TransferRun(int.from_bytes(buffer[id_at + 1 : id_at + 5]), known[1], payloads, tags, end) if tags else None


def transfers(
    buffer: bytes, at: int, id_at: int, tag_bytes: int, head_bytes: int, size_max: int, count_max: int
) -> tuple[list[bytes], list[bytes], int]:
    """Payloads and tags of the transfers with heads like the one at `at`, and where the next frame begins.

    `id_at` is the offset of the delivery-id in such a head; `size_max` is the largest frame size. The head of the first
    frame is complete.
    """
    if IS_NATIVE:
        found = usual_transfers(buffer, at, id_at, tag_bytes, head_bytes, size_max, count_max)
        if found is not None:
            return found
    return transfers_any(buffer, at, id_at, tag_bytes, head_bytes, size_max, count_max)


def transfers_any(
    buffer: bytes, at: int, id_at: int, tag_bytes: int, head_bytes: int, size_max: int, count_max: int
) -> tuple[list[bytes], list[bytes], int]:
    """The Python equivalent of `transfers` in `speedups/runs.c`."""
    unpack = _unpacking(id_at - _LEAD_AT, tag_bytes, head_bytes - id_at - _ID_AND_MARK_BYTES - tag_bytes)
    length = len(buffer)
    size, lead, first, mark, tag, ending = unpack(buffer, at)
    payloads: list[bytes] = []
    tags: list[bytes] = []
    while head_bytes <= size <= size_max and at + size <= length:
        payloads.append(buffer[at + head_bytes : at + size])
        tags.append(tag)
        at += size
        if len(tags) == count_max or at + head_bytes > length:
            break
        size, its_lead, id, its_mark, tag, its_ending = unpack(buffer, at)
        if its_lead != lead or id != first + len(tags) or its_mark != mark or its_ending != ending:
            break
    return payloads, tags, at


def _unpacking(lead_bytes: int, tag_bytes: int, ending_bytes: int) -> Any:
    """The function that unpacks a head with these lengths."""
    key = (lead_bytes << 8 | tag_bytes) << 8 | ending_bytes
    found = _unpack.get(key)
    if found is None:
        found = _unpack[key] = Struct(f">I{lead_bytes}sI2s{tag_bytes}s{ending_bytes}s").unpack_from
    return found


_unpack: Final[dict[int, Any]] = {}
"""By lengths; there are a few hundred."""

_FIELDS: Final = (
    (b"\x43", b"\x52\x00", b"\x40"),  # message-format
    (b"\x42", b"\x41", b"\x40"),  # settled
    (b"\x42", b"\x40"),  # more
    (b"\x40",),  # rcv-settle-mode
    (b"\x40",),  # state
    (b"\x42", b"\x40"),  # resume
    (b"\x42", b"\x40"),  # aborted
    (b"\x42", b"\x41", b"\x40"),  # batchable
)
_ENDINGS: Final[dict[bytes, tuple[int, bool]]] = {
    b"".join(fields): (3 + count, count > 1 and fields[1] == b"\x41")
    for count in range(1, len(_FIELDS) + 1)
    for fields in product(*_FIELDS[:count])
}
"""Every possible ending after the tag of a run's transfers: the number of fields of the transfer, and whether it is
settled."""
