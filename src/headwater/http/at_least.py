"""`Headwater-At-Least`: a read that is to see an event waits for a moment until that is here, as on a replica."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..core.errors import LogNotFound
from ..core.limits import SEQUENCE_NUMBER_MAX, show
from ..core.local import LocalLog
from .errors import InvalidParameter, NotHereYet
from .exchange import Exchange

AT_LEAST = b"headwater-at-least"
WAIT_S = 2.0
LOOK_S = 0.1
"""A log that is not there yet is looked for so often."""
T = TypeVar("T")


async def await_log(exchange: Exchange, open_log: Callable[[], Awaitable[T]]) -> T:
    """Open the log of a request that asks for a number: it may have been created elsewhere this moment.

    Raises LogNotFound: it is not there after WAIT_S, or no number is asked for. InvalidParameter: it is no number.
    """
    is_wanted = _wanted(exchange) is not None
    loop = asyncio.get_running_loop()
    until = loop.time() + WAIT_S
    while True:
        try:
            return await open_log()
        except LogNotFound:
            if not is_wanted or loop.time() >= until:
                raise
        await asyncio.sleep(LOOK_S)


async def await_number(exchange: Exchange, log: LocalLog) -> None:
    """Wait until the log has the number that a request asks for, if it names one.

    Raises NotHereYet: it has not after WAIT_S. InvalidParameter: it is no number.
    """
    if (wanted := _wanted(exchange)) is None:
        return
    loop, is_news = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(is_news.set)

    stop = log.watch(wake)
    try:
        async with asyncio.timeout(WAIT_S):
            while log.head() < wanted and not log.is_closed:
                is_news.clear()
                await is_news.wait()
    except TimeoutError:
        raise NotHereYet(wanted, log.head(), WAIT_S) from None
    finally:
        stop()


def _wanted(exchange: Exchange) -> int | None:
    """The number that a request asks for, if it names one. Raises InvalidParameter."""
    if (given := exchange.header(AT_LEAST)) is None:
        return None
    text = given.decode("latin-1")
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= SEQUENCE_NUMBER_MAX):
        allowed = f"a sequence number (0 to {SEQUENCE_NUMBER_MAX}) is allowed"
        raise InvalidParameter("Headwater-At-Least", f"{show(text)} given, {allowed}")
    return int(text)
