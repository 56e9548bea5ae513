"""Long JSON arrays as answers: rendered in slices, and sent piece by piece as fast as the client reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from ..core.loop.slices import Slices
from .exchange import JSON, Exchange

WHOLE_BYTES_MAX = 16 * 1024
"""An answer up to this long is sent whole, with its length."""


async def answer_array(
    exchange: Exchange, elements: AsyncIterator[bytes], opening: bytes = b"[", closing: bytes = b"]"
) -> None:
    """Answer 200 with a JSON array of texts that are JSON, between `opening` and `closing`.

    The answer is aborted if rendering fails after it has begun.
    """
    pieces, size, has_begun = [opening], 0, False
    separator = b""
    async for element in elements:
        pieces += separator, element
        size, separator = size + len(element) + 1, b","
        if size >= (exchange.share.piece_bytes if has_begun else WHOLE_BYTES_MAX):
            if not has_begun:
                await exchange.start(JSON)
                has_begun = True
            await exchange.send(b"".join(pieces))
            pieces, size = [], 0
    pieces.append(closing)
    if has_begun:
        await exchange.finish(b"".join(pieces))
    else:
        await exchange.answer(200, b"".join(pieces))


async def in_slices(texts: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Texts rendered one by one; other tasks of the loop run in between."""
    slices = Slices()
    for text in texts:
        yield text
        await slices.pause()
