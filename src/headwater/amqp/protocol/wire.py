"""Transfers and dispositions. There is one of each per message, so they are read and written by hand, which is several
times faster.

Unusual forms (a delivery state on a transfer, a list32, a resumed delivery) are left to `performatives`, which reads
everything that this module reads, with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import ClassVar, NamedTuple

from .codec import DecodeError
from .performatives import Accepted, DeliveryState, Disposition, Transfer, decode_performative
from .types import Described

TRANSFER = b"\x00\x53\x14"
DISPOSITION = b"\x00\x53\x15"
LIST8 = 0xC0
_DEFAULTS = b"@B"
"""null and false: the only values of a usual transfer's last fields."""
_ACCEPTED = (b"\x00\x53\x24\x45", b"\x00\x53\x24\xc0\x01\x00")
ACCEPTED = Accepted()
_uint = Struct(">I").unpack_from


class TransferFields(NamedTuple):
    """The fields of a transfer that a receiver needs (2.7.5), and where its payload begins."""

    handle: int
    delivery_id: int | None
    tag: bytes | None
    message_format: int | None
    is_settled: bool | None
    has_more: bool
    payload_at: int
    whole: Transfer | None
    """The performative itself, if it has fields other than those above."""


def read_transfer(buffer: bytes, at: int, end: int) -> TransferFields:
    """The transfer at that position. Raises DecodeError."""
    if end - at > 6 and buffer[at + 3] == LIST8 and (stop := at + 5 + buffer[at + 4]) <= end:
        try:
            fields = _usual_transfer(buffer, at + 6, stop, buffer[at + 5])
        except IndexError:
            fields = None  # truncated; the generic decoder reports where
        if fields is not None:
            return fields
    transfer, payload_at = decode_performative(buffer, at, end)
    if not isinstance(transfer, Transfer):
        raise DecodeError(f"expected a transfer, got {type(transfer).__name__}", at)
    return TransferFields(
        transfer.handle,
        transfer.delivery_id,
        transfer.delivery_tag,
        transfer.message_format,
        transfer.settled,
        transfer.more,
        payload_at,
        transfer,
    )


def _usual_transfer(buffer: bytes, at: int, stop: int, count: int) -> TransferFields | None:
    """The transfer if it has no fields except handle, id, tag, format, settled and more; None otherwise."""
    delivery_id = tag = message_format = is_settled = None
    has_more = False
    handle, at = _uint_at(buffer, at)
    if handle is None or count > 11:
        return None
    if count > 1:
        delivery_id, at = _uint_at(buffer, at)
    if count > 2:
        if (code := buffer[at]) == 0xA0:
            tag_at = at + 2
            at = tag_at + buffer[at + 1]
            tag = buffer[tag_at:at]
        elif code == 0x40:
            at += 1
        else:
            return None
    if count > 3:
        message_format, at = _uint_at(buffer, at)
    if count > 4:
        if (code := buffer[at]) != 0x40:
            is_settled = code == 0x41
            if not is_settled and code != 0x42:
                return None
        at += 1
    if count > 5:
        has_more = (code := buffer[at]) == 0x41
        if not has_more and code != 0x42 and code != 0x40:
            return None
        at += 1
    rest = max(count - 6, 0)
    if at + rest != stop or (rest and buffer[at:stop].strip(_DEFAULTS) and not _is_but_batchable(buffer[at:stop])):
        return None
    return TransferFields(handle, delivery_id, tag, message_format, is_settled, has_more, stop, None)


def _uint_at(buffer: bytes, at: int) -> tuple[int | None, int]:
    """A uint in any of its encodings, or null. Raises IndexError otherwise, so that the generic decoder is used."""
    code = buffer[at]
    if code == 0x52:
        return buffer[at + 1], at + 2
    if code == 0x70:
        buffer[at + 4]  # truncated input raises IndexError
        return _uint(buffer, at + 1)[0], at + 5
    if code == 0x43:
        return 0, at + 1
    if code == 0x40:
        return None, at + 1
    raise IndexError


def _is_but_batchable(rest: bytes) -> bool:
    return len(rest) == 5 and rest[4] == 0x41 and not rest[:4].strip(_DEFAULTS)


class DispositionFields(NamedTuple):
    """A disposition (2.7.6)."""

    is_receiver: bool
    first: int
    last: int
    is_settled: bool
    state: DeliveryState | Described | None


def read_disposition(buffer: bytes, at: int, end: int) -> DispositionFields:
    """The disposition at that position. Raises DecodeError."""
    if end - at > 10 and buffer[at + 3] == LIST8 and at + 5 + buffer[at + 4] == end:
        try:
            fields = _usual_disposition(buffer, at + 6, end, buffer[at + 5])
        except IndexError:
            fields = None
        if fields is not None:
            return fields
    disposition, _ = decode_performative(buffer, at, end)
    if not isinstance(disposition, Disposition):
        raise DecodeError(f"expected a disposition, got {type(disposition).__name__}", at)
    first = disposition.first
    last = first if disposition.last is None else disposition.last
    return DispositionFields(bool(disposition.role), first, last, disposition.settled, disposition.state)


def _usual_disposition(buffer: bytes, at: int, end: int, count: int) -> DispositionFields | None:
    """The disposition if it reports deliveries as accepted and settled; None otherwise."""
    if not 5 <= count <= 6 or (role := buffer[at]) not in b"\x41\x42":
        return None
    first, at = _uint_at(buffer, at + 1)
    last, at = _uint_at(buffer, at)
    if first is None or buffer[at] != 0x41:
        return None
    state = buffer[at + 1 : end - (count - 5)]
    if state not in _ACCEPTED or (count == 6 and buffer[end - 1] not in b"\x40\x41\x42"):
        return None
    return DispositionFields(role == 0x41, first, first if last is None else last, True, ACCEPTED)


def accepted_frame(channel: int, first: int, last: int) -> bytes:
    """The frame of a receiver's disposition that settles those deliveries as accepted, at full width."""
    return _disposition(31, 2, 0, channel, DISPOSITION, b"\xc0\x12\x06\x41\x70", first, 0x70, last, _ACCEPTED_ENDING)


_disposition = Struct(">IBBH3s5sIBI6s").pack
_ACCEPTED_ENDING = b"\x41\x00\x53\x24\x45\x42"
"""settled, the state, not batchable"""


class TransferHead:
    """Makes the heads of transfer frames that each carry a whole message of format 0, with an eight-byte tag.

    All eleven fields are written, because some clients index them without checking.
    """

    __slots__ = ("_ids",)
    BYTES: ClassVar[int] = 42

    def __init__(self, channel: int, handle: int) -> None:
        fields = (
            b"\x02\x00",
            channel.to_bytes(2, "big"),
            TRANSFER,
            b"\xc0\x1d\x0b\x70",
            handle.to_bytes(4, "big"),
            b"\x70",
        )
        self._ids = b"".join(fields)

    def frames(
        self, messages: Sequence[bytes], delivery_id: int, tags: Sequence[int], bytes_max: int, is_settled: bool
    ) -> list[bytes]:
        """The frames of messages, as head, message, head, message, up to the first that is larger than `bytes_max`.

        The first delivery has that id.
        """
        frames: list[bytes] = []
        ids, rest = self._ids, _SETTLED if is_settled else _UNSETTLED
        for message, tag in zip(messages, tags, strict=True):
            if (size := self.BYTES + len(message)) > bytes_max:
                break
            frames.append(_head(size, ids, delivery_id, b"\xa0\x08", tag, rest))
            frames.append(message)
            delivery_id = (delivery_id + 1) & 0xFFFFFFFF
        return frames


_head = Struct(">I16sI2sQ8s").pack
_SETTLED, _UNSETTLED = b"\x43\x41\x42\x40\x40\x42\x42\x42", b"\x43\x42\x42\x40\x40\x42\x42\x42"
"""format 0, settled, more, rcv-settle-mode, state, resume, aborted, batchable"""
