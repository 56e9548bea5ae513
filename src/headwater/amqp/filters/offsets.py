"""Offsets on the wire: a sequence number as a symbol of 20 decimal digits, so that text order is log order.

An offset in a filter may be any text (event streams 5.1.1: its syntax is opaque, its order is lexicographic), so a
text that is no offset of ours is still a bound: `greatest_not_above` says between which numbers it lies.
"""

from __future__ import annotations

from ..protocol.types import Symbol

OFFSET_DIGITS = 20
EARLIEST = "@earliest"
"""The reserved comparand smaller than every offset."""
LATEST = "@latest"
"""The reserved comparand greater than every offset that exists when the link attaches."""


def format_offset(number: int) -> Symbol:
    """The event-streams-offset of an event: `00000000000000000017`."""
    return Symbol(f"{number:020d}")


def parse_offset(text: str) -> int:
    """The sequence number in an offset. Raises ValueError unless it is 20 decimal digits."""
    if len(text) != OFFSET_DIGITS or not (text.isascii() and text.isdigit()):
        raise ValueError(f"an offset has {OFFSET_DIGITS} decimal digits, {text!r} given")
    return int(text)


def greatest_not_above(text: str) -> tuple[int, bool]:
    """The greatest number whose offset is not above a text in text order, -1 if all are; and whether it is equal."""
    digits = text[:OFFSET_DIGITS]
    for place, char in enumerate(digits):
        if "0" <= char <= "9":
            continue
        rest = OFFSET_DIGITS - place
        if char > "9":
            return int(digits[:place] + "9" * rest), False
        return int(digits[:place] + "0" * rest) - 1, False
    if len(digits) < OFFSET_DIGITS:  # every offset that begins with it is longer, and so above it
        return int(digits.ljust(OFFSET_DIGITS, "0")) - 1, False
    return int(digits), len(text) == OFFSET_DIGITS
