"""How a message shows what was given: quoted once, and cut, so that nobody fills answers and logs with it."""

from __future__ import annotations

SHOWN_CHARS = 80


def show(value: object, chars: int = SHOWN_CHARS) -> str:
    """`repr`, cut for a message."""
    return cut(repr(value), chars)


def cut(text: str, chars: int = SHOWN_CHARS) -> str:
    """A text as it is, cut: for what is quoted by whoever shows it."""
    return text if len(text) <= chars else f"{text[: chars - 3]}..."
