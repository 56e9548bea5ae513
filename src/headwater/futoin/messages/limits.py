"""Counts the values of a long message in slices before it is decoded, because no decoder can pause.

A decoder that only skips a value takes a few ns per value inside it: 40 ms for 8M of small ones.
"""

from __future__ import annotations

from ...core.loop.slices import Slices
from ...formats.budget.packed_pieces import array_at, map_at
from ...formats.budget.values import packed_walk
from ..errors import invalid
from .coders import JSON, MPCK, coder_of
from .message import PACKED_VALUES_MAX, VALUES_MAX

_PIECE_BYTES = 128 * 1024
_LEVELS = 4
_ELEMENTS_MAX = 2048
"""The maximum number of elements in an opened array or map. This is more than addEvents accepts."""
_OPENED_MAX = 2048
_MAGIC_BYTES = len(MPCK.magic)
_BACKSLASH, _QUOTE = b"\\", b'"'


async def check_long(body: bytes) -> None:
    """Raises FutoInError (InvalidRequest) for a message with more than VALUES_MAX values, or without a known coder."""
    coder, slices = coder_of(body), Slices()
    if coder is JSON:
        is_too_much = await _holds_more(body, slices)
    else:
        is_too_much = coder is MPCK and await _packed_holds_more(body, slices)
    if is_too_much:
        of_one = f" or {PACKED_VALUES_MAX} in one event" if coder is MPCK else ""
        raise invalid(f"expected at most {VALUES_MAX} values in a message{of_one}; send fewer at once")


async def _holds_more(text: bytes, slices: Slices) -> bool:
    values = 0
    for start in range(0, len(text), _PIECE_BYTES):
        values += _openings(text[start : start + _PIECE_BYTES])
        await slices.pause()
    return values > VALUES_MAX and await _holds_more_outside_strings(text, slices)


async def _holds_more_outside_strings(text: bytes, slices: Slices) -> bool:
    """The exact check for a text with many commas and brackets, which may be inside strings."""
    start, values, is_inside = 0, 0, False
    while start < len(text) and values <= VALUES_MAX:
        end = start + _PIECE_BYTES
        while text[end - 1 : end] == _BACKSLASH:  # keep the escaped character in the same piece
            end += 1
        piece = text[start:end].replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(_QUOTE)
        values += _openings(_QUOTE.join(parts[is_inside::2]))
        is_inside ^= len(parts) % 2 == 0
        start = end
        await slices.pause()
    return values > VALUES_MAX


def _openings(text: bytes) -> int:
    """How many values begin there: one after each comma and each opening bracket."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


async def _packed_holds_more(body: bytes, slices: Slices) -> bool:
    """Also true if one value within an event has more values than an event may have.

    Opens the envelope, `p`, an array in it and its events; the values inside those are skipped whole.
    """
    at, values, opened, left = _MAGIC_BYTES, 0, 0, [1]
    while left and values <= VALUES_MAX:
        if not left[-1]:
            left.pop()
            continue
        left[-1] -= 1
        elements, inside = _elements(body, at)
        if len(left) <= _LEVELS and 0 < elements <= _ELEMENTS_MAX and opened < _OPENED_MAX:
            left.append(elements)
            at, values, opened = inside, values + 1, opened + 1
        else:
            at, more, unseen = packed_walk(body, at, PACKED_VALUES_MAX)
            if unseen or at > len(body):
                return unseen <= len(body) - at  # otherwise it is truncated, which the decoder will report
            values += more
        await slices.pause()
    return values > VALUES_MAX


def _elements(body: bytes, at: int) -> tuple[int, int]:
    """How many values the array or map at that position has (0 if it is neither), and where the first value begins."""
    count, inside = array_at(body, at)
    if count is None:
        members, inside = map_at(body, at)
        count = 2 * (members or 0)
    return count, inside
