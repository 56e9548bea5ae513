"""Counts the values of JSON or MessagePack before any is created.

Commas and opening brackets count the values of JSON, and are found as fast as memory is read. Those inside strings are
excluded only if there seem to be too many. MessagePack is walked, up to the limit.
"""

from __future__ import annotations

from typing import NamedTuple

from ...core.errors import InvalidInput

PLAIN_BYTES = 16 * 1024
"""A text this short is not checked, because its contents are built in a few ms."""


def check_values(text: bytes, limit: int, where: str = "") -> None:
    """Raises InvalidInput if JSON of more than PLAIN_BYTES contains more than `limit` values.

    `[1, {"a": 2}]` contains four: the array, the object and two numbers. Text that is not JSON gives some number too.
    """
    if len(text) > PLAIN_BYTES and holds_more(text, limit):
        raise InvalidInput(f"more than {limit} values in {len(text)} bytes of JSON", where)


def holds_more(text: bytes, limit: int) -> bool:
    """Whether JSON contains more than `limit` values (empty arrays and objects may count as two)."""
    if len(text) <= limit or _openings(text) <= limit:
        return False
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    if text.count(b'"') > 4 * limit:  # two per string; each value is one string and has another as its name
        return True
    return _openings(b"".join(text.split(b'"')[::2])) > limit


def packed_holds_more(content: bytes, limit: int) -> bool:
    """Whether MessagePack contains, or declares, more than `limit` values, including keys of maps."""
    if len(content) <= limit:
        return False
    _, values, left = packed_walk(content, 0, limit)
    return values + left > limit


class Walk(NamedTuple):
    """The state of a walk."""

    end: int
    """Where the next value begins, or would: beyond the content if that is truncated."""
    values: int
    """The number of values passed, including keys of maps."""
    left: int
    """The number of values still known to follow."""


def packed_walk(content: bytes, at: int, limit: int) -> Walk:
    """Step over the MessagePack value at `at`, and everything in it, up to `limit` values.

    About 10,000 take a ms. Stops early if more values than bytes are left. Does not create any values.
    """
    size, left = len(content), 1
    for values in range(limit):
        if not 0 < left <= size - at:
            return Walk(at, values, left)
        kind = content[at]
        at += 1
        widths, weight = _KINDS[kind]
        if weight:  # a map or an array: its length is in the byte itself, or after it
            left += weight * (int.from_bytes(content[at : at + widths], "big") if widths else kind & 0x0F)
            at += widths
        elif widths < 0:  # bytes or text, whose length follows (an extension has one byte more)
            ends = at + (-widths & 0x0F)
            at = ends + int.from_bytes(content[at:ends], "big") + (-widths >> 4)
        else:
            at += widths
        left -= 1
    return Walk(at, limit, left)


def _kind(first: int) -> tuple[int, int]:
    """For a first byte: how many bytes follow (negative: the width of the length), and the values per element."""
    if first < 0x80 or first >= 0xE0:
        return 0, 0
    if first < 0xA0:
        return 0, 2 if first < 0x90 else 1
    if first < 0xC0:
        return first & 0x1F, 0
    return _LATER[first - 0xC0]


_LATER = (
    *[(0, 0)] * 4,  # nil, unused, false, true
    *[(-1, 0), (-2, 0), (-4, 0)],  # bytes
    *[(-0x11, 0), (-0x12, 0), (-0x14, 0)],  # extensions
    *[(4, 0), (8, 0)],  # floating-point numbers
    *[(1, 0), (2, 0), (4, 0), (8, 0)] * 2,  # whole numbers
    *[(2, 0), (3, 0), (5, 0), (9, 0), (17, 0)],  # extensions of fixed length
    *[(-1, 0), (-2, 0), (-4, 0)],  # texts
    *[(2, 1), (4, 1)],  # arrays
    *[(2, 2), (4, 2)],  # maps
)
_KINDS = [_kind(first) for first in range(256)]


def _openings(text: bytes) -> int:
    """The number of values in a text without strings: one after each comma and each opening bracket."""
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")
