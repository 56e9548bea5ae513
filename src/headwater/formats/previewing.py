"""The beginning of an event's data, for who wants to see what it is and not all of it."""

from __future__ import annotations

from msgspec import UNSET, UnsetType


def beginning(data: bytes, bytes_max: int) -> tuple[str | UnsetType, bytes | UnsetType]:
    """The first so many bytes, as text, or else as they are: one of the two is there.

    They are a text if what is shown of them is one: the rest is not looked at. A character is never cut.
    """
    cut = data[:bytes_max]
    try:
        return cut.decode(), UNSET
    except UnicodeDecodeError as error:
        if len(cut) < len(data) and error.reason == "unexpected end of data":  # of a character, the one that is cut
            return cut[: error.start].decode(), UNSET
        return UNSET, cut
