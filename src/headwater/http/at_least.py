"""`Headwater-At-Least`: a read that is to see an event waits for a moment until that is here, as on a replica."""

from __future__ import annotations

import asyncio

from ..core.limits import SEQUENCE_NUMBER_MAX, show
from ..core.local import LocalLog
from .errors import InvalidParameter, NotHereYet
from .exchange import Exchange

AT_LEAST = b"headwater-at-least"
WAIT_S = 2.0


async def await_number(exchange: Exchange, log: LocalLog) -> None:
    """Wait until the log has the number that a request asks for, if it names one.

    Raises NotHereYet: it has not after WAIT_S. InvalidParameter: it is no number.
    """
    given = exchange.header(AT_LEAST)
    if given is None:
        return
    text = given.decode("latin-1")
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= SEQUENCE_NUMBER_MAX):
        raise InvalidParameter("Headwater-At-Least", f"{show(text)} given, a sequence number is allowed")
    wanted, loop, is_news = int(text), asyncio.get_running_loop(), asyncio.Event()

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
