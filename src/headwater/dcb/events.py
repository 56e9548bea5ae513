"""Converts events from the wire to the core's, and stored events to the bytes of an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count, repeat
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from ..core.errors import InvalidEvent
from ..core.event import NO_ATTRIBUTES, Encoding, Event, SequencedEvent
from ..core.log import LargeEvent, Page
from ..formats import cloudevents, packed
from ..formats.envelope import beginning
from ..formats.slices import TEXT_BYTES_MAX, PieceBytes, end_of_character, is_text, json_slices, raw_slices
from ..formats.stubs import handed_on, large_handed_on
from . import seed
from .queries import tag_text
from .wire import EnvelopeOut, EventIn, EventOut, PreviewOut, SuiteEventOut, TagPair

_ENCODINGS = {None: Encoding.DATA, "data": Encoding.DATA, "amqp": Encoding.AMQP}
_ENCODING_NAMES = ("data", "amqp")
"""By encoding; the first one is the default, which is left out."""
_encoder = msgspec.json.Encoder()


def events_of(given: Sequence[EventIn]) -> list[Event]:
    """The core's events to append. Raises InvalidEvent with the path of the invalid part; the log checks the rest."""
    return list(map(_event_of, given, count()))


def _event_of(given: EventIn, index: int) -> Event:
    data = given.data_base64
    if data is None:
        data = b"" if given.data is None else given.data.encode()
    elif given.data is not None:
        raise InvalidEvent("use `data` or `data_base64`, not both", f"events[{index}].data_base64")
    if given.id == "":
        raise InvalidEvent("an id must not be empty; omit it to have the server create one", f"events[{index}].id")
    if given.encoding not in _ENCODINGS:
        raise InvalidEvent(f'expected "data" or "amqp", got {given.encoding!r}', f"events[{index}].encoding")
    tags = given.tags
    if TagPair in map(type, tags):
        tags = [tag if type(tag) is str else tag_text(tag, f"events[{index}].tags[{number}]")
                for number, tag in enumerate(tags)]  # fmt: skip
    return Event(
        given.type,
        data,
        tuple(tags),  # type: ignore[arg-type]
        given.id or "",
        given.source or "",
        given.attributes or NO_ATTRIBUTES,
        given.group_key or "",
        given.envelope_base64 or b"",
        _ENCODINGS[given.encoding],
    )


class Rendering(NamedTuple):
    """One form of a streamed answer: an opening, pages joined by the separator, and a closing."""

    media_type: bytes
    opening: bytes
    separator: bytes
    closing: bytes
    events: Callable[[Sequence[SequencedEvent]], bytes]
    """The bytes of one or more events."""
    large: Callable[[LargeEvent, PieceBytes], Iterator[bytes]]
    """The bytes, in slices, of an event too large for a page."""
    is_checked: bool = False
    """Whether stored events could harm its readers, and are therefore checked."""
    proves_itself: bool = False
    """Whether the reader requested an end marker and relies on it instead of HTTP."""
    packs: bool = False
    """Whether it accepts packed events unchanged."""

    def page(self, page: Page) -> bytes:
        """The bytes of a non-empty page."""
        return self.events(handed_on(page) if self.is_checked else page.events)

    def slices(self, page: Page, piece_bytes: PieceBytes) -> Iterator[bytes]:
        """The bytes of the large event of a page."""
        assert page.large is not None, "only of pages that have one"
        return self.large(large_handed_on(page) if self.is_checked else page.large, piece_bytes)


NDJSON, NDJSON_WITH_END = "application/x-ndjson", "application/x-ndjson;end=line"
"""The second one ends with a line `{"end": head}`, an object with only the head that bounds the read."""


def ndjson(
    *, has_partitions: bool, in_seed_form: bool, data_bytes_max: int | None = None, end: int | None = None
) -> Rendering:
    """One envelope per line, or a preview with `data_bytes_max`; `end` is the head, if its line was requested."""
    made = envelopes if data_bytes_max is None else partial(previews, data_bytes_max)

    def page(events: Sequence[SequencedEvent]) -> bytes:
        return _encoder.encode_lines(made(events, has_partitions, in_seed_form))

    large = partial(_large_json, has_partitions=has_partitions, in_seed_form=in_seed_form, behind=b"\n")
    large = partial(large, data_bytes_max=data_bytes_max)
    if end is None:
        return Rendering(NDJSON.encode(), b"", b"", b"", page, large)
    return Rendering(NDJSON_WITH_END.encode(), b"", b"", b'{"end":%d}\n' % end, page, large, proves_itself=True)


def json_array(*, has_partitions: bool, in_seed_form: bool, data_bytes_max: int | None = None) -> Rendering:
    """A JSON array of envelopes, or of previews with `data_bytes_max`."""
    made = envelopes if data_bytes_max is None else partial(previews, data_bytes_max)

    def page(events: Sequence[SequencedEvent]) -> bytes:
        return _encoder.encode(made(events, has_partitions, in_seed_form))[1:-1]

    large = partial(
        _large_json, has_partitions=has_partitions, in_seed_form=in_seed_form, data_bytes_max=data_bytes_max
    )
    return Rendering(b"application/json", b"[", b",", b"]", page, large)


def _large_json(
    large: LargeEvent,
    piece_bytes: PieceBytes,
    *,
    has_partitions: bool,
    in_seed_form: bool,
    data_bytes_max: int | None,
    behind: bytes = b"",
) -> Iterator[bytes]:
    encoded, data = large_envelope(large, has_partitions, in_seed_form, data_bytes_max)
    return json_slices(encoded + behind, data, piece_bytes)


def large_envelope(
    large: LargeEvent, has_partitions: bool, in_seed_form: bool, data_bytes_max: int | None = None
) -> tuple[bytes, memoryview]:
    """An event's envelope, or preview, without data as a line of JSON, and the data to insert."""
    event, data = large
    if data_bytes_max is None:
        return _encoder.encode(envelopes([event], has_partitions, in_seed_form)[0]), data
    cut = data[:data_bytes_max]
    if len(cut) <= TEXT_BYTES_MAX and is_text(whole := cut[: end_of_character(data, len(cut))]):
        cut = whole
    return _encoder.encode(_preview(0, event, has_partitions, in_seed_form, len(data))), cut


def _large_packed(large: LargeEvent, piece_bytes: PieceBytes) -> Iterator[bytes]:
    before, after = packed.page_around(large.event, len(large.data))
    yield before
    yield from raw_slices(large.data, piece_bytes)
    yield after


PACKED = Rendering(packed.MEDIA_TYPE.encode(), b"", b"", b"", packed.encode_page, _large_packed, packs=True)
"""MessagePack, the fastest form to decode; ids as stored."""
PACKED_WITH_END = Rendering(
    packed.MEDIA_TYPE_WITH_END.encode(),
    b"",
    b"",
    packed.END,
    packed.encode_page,
    _large_packed,
    proves_itself=True,
    packs=True,
)
"""The same with an empty page at its end."""


def arrow_stream() -> Rendering:
    """An Arrow stream, one record batch per page; ids as stored."""
    from ..formats.arrow import tables  # slow to load, and rarely used

    def large(large: LargeEvent, piece_bytes: PieceBytes) -> Iterator[bytes]:
        for part in tables.large_page(*large):
            yield from raw_slices(memoryview(part), piece_bytes)

    return Rendering(tables.STREAM.encode(), tables.OPENING, b"", tables.CLOSING, tables.encode_page, large)


def cloudevents_batch(default_source: str) -> Rendering:
    """A batch in the CloudEvents JSON format."""

    def page(events: Sequence[SequencedEvent]) -> bytes:
        return b",".join([cloudevents.event_to_json(event, default_source) for event in events])

    def large(large: LargeEvent, piece_bytes: PieceBytes) -> Iterator[bytes]:
        return cloudevents.large_to_json(large, default_source, piece_bytes)

    return Rendering(cloudevents.BATCH.encode(), b"[", b",", b"]", page, large, is_checked=True)


def suite_array() -> Rendering:
    """The form that the benchmark suite of dcb.events reads."""

    def page(events: Sequence[SequencedEvent]) -> bytes:
        numbers, _, _, types, data, tags, *_ = zip(*events, strict=True)
        texts, raw = _texts_and_bytes(data)
        return _encoder.encode(list(map(SuiteEventOut, types, tags, texts, numbers, raw)))[1:-1]

    def large(large: LargeEvent, piece_bytes: PieceBytes) -> Iterator[bytes]:
        event, data = large
        return json_slices(
            _encoder.encode(SuiteEventOut(event.type, event.tags, "", event.sequence_number)), data, piece_bytes
        )

    return Rendering(b"application/json", b"[", b",", b"]", page, large)


def envelopes(events: Sequence[SequencedEvent], has_partitions: bool, in_seed_form: bool) -> list[EnvelopeOut]:
    """The seed's EventEnvelopes of one or more stored events; built column by column for speed."""
    (numbers, times, partitions, types, data, tags, ids, sources, attributes, group_keys, amqp_envelopes, encodings) = (
        zip(*events, strict=True)
    )
    texts, raw = _texts_and_bytes(data)
    shown = map(
        EventOut,
        map(seed.shown_id, ids, sources) if in_seed_form else ids,
        types,
        texts,
        tags,
        raw,
        sources,
        [dict(each) if each else UNSET for each in attributes] if any(attributes) else repeat(UNSET),
        group_keys,
        [each or UNSET for each in amqp_envelopes] if any(amqp_envelopes) else repeat(UNSET),
        [_ENCODING_NAMES[each] for each in encodings] if any(encodings) else repeat("data"),
    )
    return list(map(EnvelopeOut, shown, numbers, times, partitions if has_partitions else repeat(UNSET)))


def previews(
    data_bytes_max: int, events: Sequence[SequencedEvent], has_partitions: bool, in_seed_form: bool
) -> list[EnvelopeOut]:
    """Like `envelopes`, with at most that much of each event's data (`formats.previewing`), and the data sizes."""
    return [_preview(data_bytes_max, event, has_partitions, in_seed_form) for event in events]


def _preview(
    data_bytes_max: int, event: SequencedEvent, has_partitions: bool, in_seed_form: bool, size: int | None = None
) -> EnvelopeOut:
    text, raw = beginning(event.data, data_bytes_max)
    shown = PreviewOut(
        seed.shown_id(event.id, event.source) if in_seed_form else event.id,
        event.type,
        text,
        event.tags,
        raw,
        event.source,
        dict(event.attributes) if event.attributes else UNSET,
        event.group_key,
        UNSET,
        _ENCODING_NAMES[event.encoding],
        data_bytes=len(event.data) if size is None else size,
        envelope_bytes=len(event.envelope),
    )
    return EnvelopeOut(shown, event.sequence_number, event.recorded_at, event.partition if has_partitions else UNSET)


def envelope_texts(
    events: Sequence[SequencedEvent], has_partitions: bool, in_seed_form: bool, data_bytes_max: int | None = None
) -> list[bytes]:
    """The envelopes, or previews, as one line of JSON each."""
    if data_bytes_max is None:
        return list(map(_encoder.encode, envelopes(events, has_partitions, in_seed_form)))
    return list(map(_encoder.encode, previews(data_bytes_max, events, has_partitions, in_seed_form)))


def _texts_and_bytes(
    column: Sequence[bytes],
) -> tuple[Iterable[str | UnsetType], Iterable[bytes | UnsetType]]:
    """Payloads as text, or as bytes if they are not UTF-8: each event has one of the two."""
    if b"".join(column).isascii():
        return map(bytes.decode, column), repeat(UNSET)
    texts = list(map(_text_of, column))
    return texts, [data if text is UNSET else UNSET for data, text in zip(column, texts, strict=True)]


def _text_of(data: bytes) -> str | UnsetType:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return UNSET
