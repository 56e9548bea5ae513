"""Takes long strings out of JSON before it is decoded, and decodes them in spans; other tasks run in between.

No decoder can stop half way, and on a string of 60 MiB each call takes 60 to 190 ms. So a short, random string replaces
each string of LONG_BYTES or more. The decoder gets the short text; then the data of the events get their strings back.
A body without such a string is only sampled.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from ...core.errors import InvalidInput, TooLarge
from ...core.event import Event
from ...core.loop.slices import Slices
from .. import jsontext
from .output import SPAN_BYTES, Output

LONG_BYTES = 1024 * 1024
"""The minimum length of a string that is taken out: decoding a shorter one takes at most 3 ms."""
_SAMPLE_BYTES = 4096
_RANDOM_BYTES = 15
_NUMBER_BYTES = 3
_TEXT_BYTES = (_RANDOM_BYTES + _NUMBER_BYTES) * 4 // 3
_CONTENT = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
"""The inside of a string, without its end or half of an escape."""
_WHOLE_CHARACTERS = re.compile(rb"(?:[^\\]++|\\u[dD][89abAB]..\\u....|\\u(?![dD][89abAB])....|\\[^u])*+", re.DOTALL)
"""The same without half of a surrogate pair."""
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_QUOTES_MAX = 256
"""If a span has more, one expression checks them all instead of each one individually."""
_NEAR_BYTES = 256
_PAIR_HALF = 6
_HIGH_HALF, _LOW_HALF = re.compile(rb"\\u[dD][89abAB]"), re.compile(rb"\\u[dD][c-fC-F]")
_text = msgspec.json.Decoder(str)
_base64 = msgspec.json.Decoder(bytes)


class _Long(NamedTuple):
    start: int
    end: int


class Shortened:
    """JSON with short strings in place of the long ones."""

    def __init__(self, original: bytes, found: Sequence[_Long], secret: bytes) -> None:
        self.original, self._found, self._secret = original, found, secret
        self._prefix = b64encode(secret)
        self._left = set(range(len(found)))
        self.text = b""
        """The text to decode in place of the original."""

    async def shorten(self, slices: Slices) -> None:
        """Create the text."""
        out = Output(len(self.original))
        at = 0
        for number, (start, end) in enumerate(self._found):
            await out.copy(self.original, at, start, slices)
            out.write(self._stand_in(number))
            at = end
        await out.copy(self.original, at, len(self.original), slices)
        self.text = out.value()

    def offset(self, at: int) -> int:
        """The place in the original for a place in the text."""
        for start, end in self._found:
            if at <= start:
                break
            at += end - start - _TEXT_BYTES
        return at

    async def restore(self, events: Sequence[Event], slices: Slices, bytes_max: int) -> list[Event]:
        """Events decoded from the text, or a part of it, with their original data.

        Raises InvalidInput if a string is invalid, TooLarge if one that contains JSON is longer than `bytes_max`.
        """
        found = []
        for index, event in enumerate(events):
            data = await self._restored(event.data, slices, bytes_max, f"events[{index}]")
            envelope = await self._restored(event.envelope, slices, bytes_max, f"events[{index}]")
            same = data is event.data and envelope is event.envelope
            found.append(event if same else event._replace(data=data, envelope=envelope))
            await slices.pause()
        return found

    def check_all_used(self) -> None:
        """Raises InvalidInput if a long string was neither data nor inside data: nothing else may be that long."""
        for number in self._left:
            start, end = self._found[number]
            raise InvalidInput(f"a string of {end - start} bytes is too long")

    def _stand_in(self, number: int) -> bytes:
        return b64encode(self._secret + number.to_bytes(_NUMBER_BYTES, "big"))

    async def _restored(self, content: bytes, slices: Slices, bytes_max: int, where: str) -> bytes:
        if len(content) == _RANDOM_BYTES + _NUMBER_BYTES and content.startswith(self._secret):
            return await self._decoded_base64(self._taken(content, bytes_max, where), slices)
        if self._prefix not in content:
            return content
        if len(content) == _TEXT_BYTES:
            return await self._decoded(self._taken(b64decode(content), bytes_max, where), slices)
        return await self._expanded(content, slices, bytes_max, where)

    def _taken(self, secret: bytes, bytes_max: int, where: str) -> _Long:
        number = int.from_bytes(secret[_RANDOM_BYTES:], "big")
        if number not in self._left:
            raise InvalidInput("a string is given twice", where)
        self._left.discard(number)
        found = self._found[number]
        if (size := found.end - found.start) > bytes_max:
            raise TooLarge(size, bytes_max, "bytes of one event", where)
        return found

    async def _decoded(self, string: _Long, slices: Slices) -> bytes:
        """The decoded string, in UTF-8."""
        out = Output(string.end - string.start)
        for at, end in _spans(self.original, string):
            out.write(self._text(at, end).encode())
            await slices.pause()
        return out.value()

    async def _decoded_base64(self, string: _Long, slices: Slices) -> bytes:
        out = Output((string.end - string.start) * 3 // 4 + 3)
        rest = ""
        for at, end in _spans(self.original, string):
            rest += self._text(at, end)
            is_last = end == string.end
            whole = len(rest) if is_last else len(rest) // 4 * 4
            piece, rest = rest[:whole], rest[whole:]
            if not is_last and "=" in piece:
                raise InvalidInput("invalid base64 encoded string")
            out.write(jsontext.decode(_base64, msgspec.json.encode(piece)))
            await slices.pause()
        return out.value()

    async def _expanded(self, content: bytes, slices: Slices, bytes_max: int, where: str) -> bytes:
        """JSON whose placeholders are replaced by the original strings."""
        strings = [
            (found.start(), self._taken(b64decode(found[0]), bytes_max, where))
            for found in re.finditer(re.escape(self._prefix) + rb".{%d}" % (_TEXT_BYTES - len(self._prefix)), content)
        ]
        out = Output(len(content) + sum(end - start for _, (start, end) in strings))
        begin = 0
        for place, string in strings:
            await out.copy(content, begin, place, slices)
            for at, end in _spans(self.original, string):
                self._text(at, end)  # checks that it is JSON
                out.write(self.original[at:end])
                await slices.pause()
            begin = place + _TEXT_BYTES
        await out.copy(content, begin, len(content), slices)
        return out.value()

    def _text(self, at: int, end: int) -> str:
        """A decoded span of a string. Raises MalformedJson, with the place in the shortened text."""
        span = b'"%b"' % self.original[at:end]
        try:
            return jsontext.decode(_text, span)
        except jsontext.MalformedJson as error:
            raise jsontext.MalformedJson(error.cause, self.original, at + error.offset - 1) from None


async def shortened(text: bytes, slices: Slices) -> Shortened | None:
    """The text without its long strings; None if it has none."""
    last = max((at for at in range(0, len(text), LONG_BYTES // 2) if _may_be_inside(text, at)), default=None)
    if last is None:
        return None
    found = list[_Long]()
    at = 0
    while at <= last:
        start = text.find(b'"', at, at + SPAN_BYTES) + 1
        if not start:
            at += SPAN_BYTES
        else:
            end = await _end(text, start, slices)
            if end - start >= LONG_BYTES:
                found.append(_Long(start, end))
            at = end + 1
        await slices.pause()
    if not found:
        return None
    short = Shortened(text, found, secrets.token_bytes(_RANDOM_BYTES))
    await short.shorten(slices)
    return short


def _may_be_inside(text: bytes, at: int) -> bool:
    """Whether the next bytes may all be inside one string: no quote there ends it."""
    sample = text[at : at + _SAMPLE_BYTES]
    return sample.count(b'"', 1) <= sample.count(b'\\"')


async def _end(text: bytes, start: int, slices: Slices) -> int:
    """The end of the string that begins there; the end of the text if it is not closed."""
    at = start
    while at < len(text):
        stop = min(at + SPAN_BYTES, len(text))
        if text.count(b'"', at, stop) > _QUOTES_MAX:
            at += _is_escaped(text, start, at)
            found = _CONTENT.match(text, at, stop)
            assert found is not None, "nothing fits, too"
            at = found.end()
            if at < stop and text[at] == _QUOTE:
                return at
            if at + 1 >= len(text):
                break
        else:
            while (quote := text.find(b'"', at, stop)) >= 0 and _is_escaped(text, start, quote):
                at = quote + 1
            if quote >= 0:
                return quote
            at = stop
        await slices.pause()
    return len(text)


def _is_escaped(text: bytes, start: int, at: int) -> bool:
    """Whether an odd number of backslashes precedes a character of the string that begins at `start`."""
    count, size = 0, 16
    while True:
        run = text[max(start, at - size) : at]
        count = len(run) - len(run.rstrip(b"\\"))
        if count < size or at - size <= start:
            return count % 2 == 1
        size *= 4


def _spans(text: bytes, string: _Long) -> Iterator[tuple[int, int]]:
    """The bounds of spans of a string; no escape and no character is split."""
    at, last = string
    while at < last:
        end = min(at + SPAN_BYTES, last)
        if end < last:
            end = _whole(text, at, end)
        yield at, end
        at = end


def _whole(text: bytes, at: int, end: int) -> int:
    """The last place up to `end` that is not inside a character, escape or pair of escapes; after `at`."""
    low = max(at + 1, end - _NEAR_BYTES)
    first = text.rfind(b"\\", low, end)
    if first >= 0:
        while first > low and text[first - 1] == _BACKSLASH:
            first -= 1
        if first > low + _PAIR_HALF and _LOW_HALF.match(text, first) and _HIGH_HALF.match(text, first - _PAIR_HALF):
            first -= _PAIR_HALF
            is_known = text[first - 1] != _BACKSLASH
        else:  # a backslash after another character begins an escape
            is_known = first > low and not _LOW_HALF.match(text, first)
        if is_known:
            return first
        found = _WHOLE_CHARACTERS.match(text, at, end)
        assert found is not None, "nothing fits, too"
        end = found.end() if found.end() > at else end
    while end > at + 1 and text[end] & 0xC0 == 0x80:
        end -= 1
    return end
