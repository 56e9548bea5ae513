"""Where a time is in a log, and how many events there were when: by the times at which they were recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial

import msgspec

from ..core.access import Right
from ..core.errors import InvalidInput
from ..core.limits import SEQUENCE_NUMBER_MAX, show
from ..core.local import LocalLog
from ..core.query import ALL
from ..http import Exchange
from ..http.errors import InvalidParameter
from ..http.exchange import whole_number
from .buckets import HISTOGRAM_S_MAX, TYPES_MAX, asked, borders
from .counting import Tally
from .host import Host
from .wire import BucketOut, HistogramIn, HistogramOut, PositionOut
from .working import Work

_decoder = msgspec.json.Decoder(HistogramIn)


async def position(host: Host, exchange: Exchange) -> None:
    """GET /logs/{log}/position"""
    opened = await host.log(exchange, Right.READ)
    at = whole_number(exchange.parameters("at"), "at")
    if at is None:
        raise InvalidParameter("at", "is missing; give a time in ms since 1970 UTC")
    found = await asyncio.to_thread(opened.log.sequence_number_at, at)
    await exchange.answer_json(200, PositionOut(found, opened.log.head(), opened.view.incarnation))


async def histogram(host: Host, exchange: Exchange) -> None:
    """POST /logs/{log}/histogram"""
    opened = await host.log(exchange, Right.READ)
    given, query, count, types_max = await asked(exchange, _decoder)
    log = opened.log
    selection = log.selection(None, None, False, None, given.partition)
    async with Work(host, exchange, HISTOGRAM_S_MAX) as work:
        begin, end = await work.do(partial(_range, log, given.recorded_from, given.recorded_before))
        times = borders(begin, end, count)
        numbers = [number async for number in work.steps(_numbers(log, times, selection.head))]
        tallies: list[Tally] = []
        while len(tallies) + 1 < len(numbers) and not work.is_over:
            low, high = numbers[len(tallies)], numbers[len(tallies) + 1]
            tally = Tally(by_type=bool(given.by_type), types_max=TYPES_MAX * 8)
            await tally.add(opened, query, selection._replace(after=low - 1), high - 1, work)
            tallies.append(tally)
    buckets = _shown(tallies, times, numbers, types_max)
    is_complete = len(tallies) == len(times) - 1 and all(
        tally.upto >= high - 1 for tally, high in zip(tallies, numbers[1:], strict=False)
    )
    answer = HistogramOut(begin, end, buckets, is_complete, selection.head, opened.view.incarnation)
    await exchange.answer_json(200, answer, opened.view.headers(selection.head))


def _range(log: LocalLog, begin: int | None, end: int | None) -> tuple[int, int]:
    """From which time on, and before which; by default, all of the log. Raises InvalidInput."""
    for name, value in (("recorded_from", begin), ("recorded_before", end)):
        if value is not None and not 0 <= value <= SEQUENCE_NUMBER_MAX:
            raise InvalidInput(f"{show(value)} given, 0 to {SEQUENCE_NUMBER_MAX} is allowed", name)
    if begin is None:
        first = log.read_page(ALL, 0, limit=1).events
        begin = first[0].recorded_at if first else end if end is not None else 0
    if end is None:
        last = log.read_page(ALL, log.head() + 1, backwards=True, limit=1).events
        end = max(begin, last[0].recorded_at if last else 0) + 1
    if end <= begin:
        raise InvalidInput(f"{end} given, it must be above recorded_from, {begin}", "recorded_before")
    return begin, end


def _numbers(log: LocalLog, times: list[int], head: int) -> Iterator[int]:
    """The first number of each time, or one above the head; each is a step."""
    for time in times:
        yield min(log.sequence_number_at(time), head + 1)


def _shown(tallies: list[Tally], times: list[int], numbers: list[int], types_max: int | None) -> list[BucketOut]:
    """The buckets; by type, those that have most events in all of them."""
    total = Tally(by_type=True)
    for tally in tallies:
        total.include(tally)
    names = total.shown(types_max or 0)[0]
    return [
        BucketOut(
            times[index],
            numbers[index],
            tally.events,
            msgspec.UNSET if types_max is None else {name: tally.types[name] for name in names if tally.types[name]},
        )
        for index, tally in enumerate(tallies)
    ]
