"""Which of several forms of an answer a client prefers (RFC 9110, 12.5.1)."""

from __future__ import annotations

from collections.abc import Mapping

ACCEPT_BYTES_MAX = 4096
"""Of an Accept header that are looked at: more than any client sends that means it."""


def preferred(accept: bytes | None, offered: Mapping[str, str], otherwise: str) -> str:
    """The form that an Accept header prefers; `otherwise` where it prefers none.

    `offered` has the forms by media type, in lower case; several may stand for one form. Of the header
    no more than ACCEPT_BYTES_MAX counts.
    """
    best, best_quality = otherwise, 0.0
    for part in (accept or b"")[:ACCEPT_BYTES_MAX].decode("latin-1").lower().split(","):
        media_range, *parameters = [piece.strip() for piece in part.split(";")]
        quality = next((_quality(each[2:]) for each in parameters if each.startswith("q=")), 1.0)
        if media_range in offered and quality > best_quality:
            best, best_quality = offered[media_range], quality
    return best


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
