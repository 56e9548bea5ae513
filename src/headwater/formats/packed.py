"""Events as MessagePack, the fast format for programs to append and read over HTTP.

An event is an array of its fields in the order of `core.Event` (those that a log added come first, as in
`core.SequencedEvent`); empty fields at the end may be left out. Payloads are raw bytes, and no field is named, so that
a thousand events take a quarter of the time that their JSON takes. A page is an array of events, wrapped into a `bin
32`: a reader of a stream of pages sees from five bytes how long the next one is. An empty page marks the end, for
readers that requested one: without it the stream broke off, whatever its transport says.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from ..core.errors import InvalidInput
from ..core.event import SequencedEvent
from ..core.limits import EventColumns
from . import jsontext

T = TypeVar("T")

MEDIA_TYPE = "application/vnd.msgpack"
MEDIA_TYPE_WITH_END = f"{MEDIA_TYPE};end=page"
"""Requests an empty page as the end marker, and declares that there is one."""

_LEAD = struct.Struct(">BI")
_BIN_32 = 0xC6
_PAGE_BEGINS = bytes([_BIN_32])
_SHORT_HEADS = [bytes((0x90 | count,)) for count in range(16)]
"""The heads of arrays with fewer than 16 elements, by their number."""
_encoder = msgspec.msgpack.Encoder(enc_hook=dict)  # only an event's attributes are not a plain value
_decoder = msgspec.msgpack.Decoder(list[SequencedEvent])


class PackedEvents(Sequence[SequencedEvent]):
    """Stored events as the rows of a page: `encode_page` uses them unchanged; other callers get them decoded."""

    __slots__ = ("rows", "total")

    def __init__(self) -> None:
        self.rows = bytearray()
        """Encoded rows, one after the other."""
        self.total = 0
        """The number of rows, set by whoever adds some."""

    def extend(self, events: Sequence[SequencedEvent]) -> None:
        """Append events."""
        for event in events:
            _encoder.encode_into(event, self.rows, -1)
        self.total += len(events)

    def __len__(self) -> int:
        return self.total

    def __getitem__(self, index: Any) -> Any:
        return list(self)[index]

    def __iter__(self) -> Iterator[SequencedEvent]:
        return iter(_decoder.decode(_array_head(self.total) + self.rows))


def _array_head(count: int) -> bytes:
    if count < 16:
        return _SHORT_HEADS[count]
    return struct.pack(">BH", 0xDC, count) if count <= 0xFFFF else struct.pack(">BI", 0xDD, count)


def encode_page(events: Sequence[SequencedEvent]) -> bytes:
    """A page of stored events."""
    if events.__class__ is PackedEvents:
        head, rows = _array_head(events.total), events.rows
        return b"".join((_LEAD.pack(_BIN_32, len(head) + len(rows)), head, rows))
    page = _encoder.encode(events)
    return _LEAD.pack(_BIN_32, len(page)) + page


def page_around(event: SequencedEvent, size: int) -> tuple[bytes, bytes]:
    """The bytes before and after data of that size, on a page of that one event, whose own data is empty."""
    number, recorded_at, partition, type, _, *rest = event
    before = b"".join(map(_encoder.encode, (number, recorded_at, partition, type))) + _LEAD.pack(_BIN_32, size)
    after = b"".join(map(_encoder.encode, rest))
    heads = _array_head(1) + _array_head(len(event))
    return _LEAD.pack(_BIN_32, len(heads) + len(before) + size + len(after)) + heads + before, after


END = encode_page(())
"""The empty page."""


class PageParser:
    """Bytes in, pages of stored events out; each page continues where the previous one ended."""

    def __init__(self, beyond: int | None = None, *, backwards: bool = False) -> None:
        """The first event has a number above `beyond`, or below it if backwards; None for any."""
        self._last, self._backwards = beyond, backwards
        self._pieces: list[bytes] = []
        self._size = 0
        self._needed = _LEAD.size
        """How many bytes are needed to continue."""
        self.has_ended = False
        """Whether an empty page was received: nothing follows."""

    @property
    def is_between_pages(self) -> bool:
        """Whether the last page is complete."""
        return not self._size

    def receive_data(self, data: bytes) -> list[SequencedEvent]:
        """The events of the pages that are complete now.

        Raises InvalidInput for input that is not a page, follows the end, or breaks the order of the read.
        """
        if not self._pieces and data[:1] == _PAGE_BEGINS and not self.has_ended:
            size = int.from_bytes(data[1:5], "big")
            rest = len(data) - _LEAD.size - size
            if rest == 0 or (rest == len(END) and data.endswith(END)):  # one page, or all of the input
                events = self._page(memoryview(data)[_LEAD.size : _LEAD.size + size])
                self.has_ended = rest > 0 or not events
                return events
        self._pieces.append(data)
        self._size += len(data)
        events = []
        if self._size < self._needed:
            return events
        content = memoryview(data if len(self._pieces) == 1 else b"".join(self._pieces))
        while len(content) >= (needed := _page_bytes(content)):
            if self.has_ended:
                raise InvalidInput("a page follows the empty last page")
            page = self._page(content[_LEAD.size : needed])
            events = events + page if events else page
            self.has_ended = not page
            content = content[needed:]
        self._pieces = [bytes(content)] if content else []
        self._size, self._needed = len(content), needed
        return events

    def _page(self, content: memoryview) -> list[SequencedEvent]:
        """The page's events, which continue from the page before: a repeated one would be taken for other events."""
        events = decode(_decoder, content)
        if events:
            first, last = events[0][0], self._last
            if last is not None and (first >= last if self._backwards else first <= last):
                raise InvalidInput(f"event {first} comes after {last}: a page was repeated or belongs to another read")
            self._last = events[-1][0]
        return events


def _page_bytes(content: memoryview) -> int:
    """The length of the page that begins there, or its minimum."""
    if len(content) < _LEAD.size:
        return _LEAD.size
    kind, length = _LEAD.unpack_from(content)
    if kind != _BIN_32:
        raise InvalidInput(f"expected the byte {_BIN_32:#x} at the start of a page, got {kind:#x}")
    return _LEAD.size + int(length)


def decode(decoder: msgspec.msgpack.Decoder[T], content: bytes | memoryview) -> T:
    """The decoded MessagePack, as the decoder's type. Raises InvalidInput, with the path of what does not fit it."""
    try:
        return decoder.decode(content)
    except msgspec.ValidationError as error:
        raise jsontext.misfit(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"malformed MessagePack: {error}") from None
    except RecursionError:
        raise InvalidInput("the MessagePack is nested too deeply") from None


def event_rows(columns: EventColumns) -> list[tuple[object, ...]]:
    """Checked events as arrays for an append, without trailing fields that are empty in all events."""
    plain = (columns.types, columns.data, columns.tags, columns.ids)
    rest = (columns.sources, columns.attributes, columns.group_keys, columns.envelopes, columns.encodings)
    if not any(map(any, rest)):
        return list(zip(*plain, strict=True))
    return list(zip(*plain, *rest, strict=True))


encode = _encoder.encode
"""Encodes any value that contains such events, or arrays of them."""
