"""How messages show a given value: quoted once and truncated, so that large input does not fill answers and logs."""

from __future__ import annotations

SHOWN_CHARS = 80


def show(value: object, chars: int = SHOWN_CHARS) -> str:
    """`repr`, truncated for a message."""
    return cut(repr(value), chars)


def cut(text: str, chars: int = SHOWN_CHARS) -> str:
    """The text itself, truncated, for callers that add their own quotes."""
    return text if len(text) <= chars else f"{text[: chars - 3]}..."
