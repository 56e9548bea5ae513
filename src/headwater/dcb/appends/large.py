"""Long bodies: limits are checked before anything is built, and bodies are decoded in pieces, between other requests.

A body of up to LARGE_BYTES is always decoded in one step of a few ms, without this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct

from ...core.errors import InvalidInput, TooLarge
from ...core.event import Event
from ...core.loop.append_builder import AppendBuilder, moved
from ...core.loop.slices import Slices
from ...formats import cloudevents, jsontext
from ...formats.budget import values
from ...formats.budget.json_pieces import cut
from ...formats.budget.long_strings import Shortened, shortened
from ...formats.jsontext import MalformedJson
from ..queries import QUERY_VALUES_MAX

LARGE_BYTES = 64 * 1024
_PIECE_VALUES_MAX = 128 * 1024
"""The maximum number of values in one piece: a valid event has so few that no piece with one exceeds this."""
_ESCAPE = 6
"""The maximum number of bytes of JSON per byte of an event: `\\u00e9`."""
BESIDE_BYTES_MAX = 8 * 1024 * 1024
"""The maximum size of an event's tags and attributes plus a condition, as JSON or as MessagePack."""
_HEAD_BYTES_MAX = 4 * 1024 * 1024
"""The number of bytes of a body that are searched for the start of its events."""
_GUESSES_MAX = 8
_EVENTS = re.compile(rb'"events"\s*+:\s*+\[')
_ARRAY = re.compile(rb"\s*+\[")
_INDEX = re.compile(r"^\[")


class _Append(Protocol):
    @property
    def events(self) -> Any: ...


Body = TypeVar("Body", bound=_Append)


class Form(NamedTuple, Generic[Body]):
    """One JSON form of an append: an object with an `events` array."""

    body: msgspec.json.Decoder[Body]
    elements: msgspec.json.Decoder[Any]
    events_of: Callable[[Any], list[Event]]
    """The events of some elements. Errors have paths into `events`."""


class _Members(Struct):
    events: Raw = Raw()
    condition: Raw = Raw()


_members = msgspec.json.Decoder(_Members)


async def read_json(body: bytes, form: Form[Body], builder: AppendBuilder) -> Body:
    """Collect the events of an append. Returns the body; some or all of its `events` remain in it.

    Raises InvalidInput, TooLarge, with paths into the body.
    """
    slices = Slices()
    text = await _text_of(body, slices)
    opening = _opening(text.text, form)

    def read(piece: bytes) -> list[Event]:
        return form.events_of(jsontext.decode(form.elements, piece))

    start = await _gather_pieces(text, opening, builder, slices, read)
    with text.placed(builder.count, start - opening):
        rest = _rest(text.text, opening, start, builder)
        _check_rest(rest, opening)
        given = jsontext.decode(form.body, rest)
        events = form.events_of(given.events)
    await _add(text, events, builder, slices)
    text.check_all_used()
    return given


async def read_batch(body: bytes, builder: AppendBuilder) -> None:
    """Collect the events of a batch of CloudEvents. Raises InvalidInput, TooLarge, with paths into `events`."""
    slices = Slices()
    text = await _text_of(body, slices)
    found = _ARRAY.match(text.text)
    opening = found.end() if found else 0
    read = cloudevents.events_from_json_batch
    start = await _gather_pieces(text, opening, builder, slices, read)
    with text.placed(builder.count, start - opening):
        rest = _rest(text.text, opening, start, builder)
        values.check_values(rest, _PIECE_VALUES_MAX, "events")
        events = read(rest)
    await _add(text, events, builder, slices)
    text.check_all_used()


async def read_cloudevent(body: bytes, builder: AppendBuilder) -> None:
    """Collect the one event of a message in structured mode. Raises the same errors as `read_batch`."""
    slices = Slices()
    text = await _text_of(body, slices)
    with text.placed(0, 0):
        _rest(text.text, 0, 0, builder)
        events = [cloudevents.event_from_json(text.text)]
    await _add(text, events, builder, slices)
    text.check_all_used()


async def _text_of(body: bytes, slices: Slices) -> _Text:
    return _Text(body, await shortened(body, slices))


async def _gather_pieces(
    text: _Text, start: int, builder: AppendBuilder, slices: Slices, read: Callable[[bytes], list[Event]]
) -> int:
    """Collect the events from `start` (0: unknown) on, except the last ones.

    Returns the position at which those begin.
    """
    while start and (piece := cut(text.text, start, _piece_bytes_max(builder))) is not None:
        with text.placed(builder.count, start - 1):
            values.check_values(piece.text, _PIECE_VALUES_MAX, "events")
            events = read(piece.text)
        await _add(text, events, builder, slices)
        start = piece.following
    return start


async def _add(text: _Text, events: Sequence[Event], builder: AppendBuilder, slices: Slices) -> None:
    """Add the next events, with their long strings."""
    await builder.add_all(await text.restored(events, builder, slices), slices)


def _rest(body: bytes, opening: int, start: int, builder: AppendBuilder) -> bytes:
    """The body without the finished pieces from `opening` to `start`, to decode in one step. Raises TooLarge."""
    length, at_most = len(body) - (start - opening), _piece_bytes_max(builder)
    if length > at_most:
        raise TooLarge(length, at_most, "bytes of one event", "events[0]")
    return body[:opening] + body[start:] if start > opening else body


def _piece_bytes_max(builder: AppendBuilder) -> int:
    """The maximum size in JSON of one valid event and everything other than events."""
    return _ESCAPE * builder.event_bytes_max + BESIDE_BYTES_MAX


def _opening(body: bytes, form: Form[Any]) -> int:
    """The position at which the first event begins; 0 if that is not obvious."""
    for number, found in enumerate(_EVENTS.finditer(body, 0, _HEAD_BYTES_MAX)):
        head = body[: found.end()] + b"]}"
        with suppress(InvalidInput):
            values.check_values(head, QUERY_VALUES_MAX, "query")
            if jsontext.decode(form.body, head).events == []:
                return found.end()
        if number == _GUESSES_MAX:
            break
    return 0


def _check_rest(rest: bytes, opening: int) -> None:
    """Check that the rest has few values, and that its `events` is the array from which the pieces were taken."""
    members = jsontext.decode(_members, rest)
    events = bytes(members.events)
    if opening and not rest.startswith(events, opening - 1):
        raise InvalidInput("it occurs twice", "events")
    values.check_values(bytes(members.condition), QUERY_VALUES_MAX, "condition")
    values.check_values(events, _PIECE_VALUES_MAX, "events")
    if len(rest) - len(events) - len(members.condition) > LARGE_BYTES:
        raise InvalidInput(f"expected at most {LARGE_BYTES} bytes in addition to `events` and `condition`")


class _Text:
    """A body without its long strings, for decoding; events get the strings back afterwards."""

    def __init__(self, body: bytes, short: Shortened | None) -> None:
        self._body, self._short = body, short
        self.text = body if short is None else short.text

    @contextmanager
    def placed(self, first: int, offset: int) -> Iterator[None]:
        """Like `placed`, for a piece of the text."""
        try:
            with placed(self.text, first, offset):
                yield
        except MalformedJson as error:
            if self._short is None:
                raise
            raise MalformedJson(error.cause, self._body, self._short.offset(error.offset)) from None

    async def restored(self, events: Sequence[Event], builder: AppendBuilder, slices: Slices) -> Sequence[Event]:
        """The events with their long strings. Raises InvalidInput, TooLarge."""
        if self._short is None:
            return events
        try:
            return await self._short.restore(events, slices, _piece_bytes_max(builder))
        except InvalidInput as error:
            error.move(moved(error.where, builder.count))
            raise

    def check_all_used(self) -> None:
        """Raises InvalidInput if a long string is not data of an event."""
        if self._short is not None:
            self._short.check_all_used()


@contextmanager
def placed(body: bytes, first: int, offset: int) -> Iterator[None]:
    """Translate errors in a piece to positions in the body: `first` events and `offset` bytes of text precede it."""
    try:
        yield
    except MalformedJson as error:
        raise MalformedJson(error.cause, body, error.offset + offset) from None
    except InvalidInput as error:
        error.move(moved(_INDEX.sub("events[", error.where), first))
        raise
