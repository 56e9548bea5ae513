"""How many events happened when, by their own times: a histogram that reads the events, and remembers their times."""

from __future__ import annotations

import hashlib

import msgspec

from ..core.access import Right
from ..core.errors import InvalidInput
from ..core.limits import show
from ..http import Exchange
from .buckets import HISTOGRAM_S_MAX, asked, borders
from .event_times import OTHERS, TIME_MAX, TIME_MIN, Seen
from .host import Host
from .wire import EventBucketOut, EventHistogramIn, EventHistogramOut
from .working import Work

_decoder = msgspec.json.Decoder(EventHistogramIn)


async def event_histogram(host: Host, exchange: Exchange) -> None:
    """POST /logs/{log}/event-histogram"""
    opened = await host.log(exchange, Right.READ)
    given, query, count, types_max = await asked(exchange, _decoder)
    _check_range(given.event_from, given.event_before)
    log, incarnation = opened.log, opened.view.incarnation
    selection = log.selection(None, None, False, None, given.partition)
    question = hashlib.blake2b(msgspec.json.encode(given.query)).digest()
    scan = host.event_times.scan((incarnation, given.partition, question), selection.head)
    async with Work(host, exchange, HISTOGRAM_S_MAX) as work:
        async for _ in work.steps(scan.steps(log, query, given.partition, selection.head)):
            pass
        host.event_times.bound()
        seen = scan.seen(log, selection.head)
        begin, end = _range(seen, given.event_from, given.event_before)
        times = borders(begin, end, count)
        totals: dict[str, list[int]] = {}
        async for found in work.steps(seen.counted(times), is_bounded=False):
            for name, buckets in found.items():
                total = totals.setdefault(name, [0] * (len(times) - 1))
                for bucket, events in buckets:
                    total[bucket] += events
    answer = EventHistogramOut(
        begin, end, _shown(totals, times, types_max), seen.events, seen.low, seen.high,
        seen.is_complete, selection.head, incarnation,
    )  # fmt: skip
    await exchange.answer_json(200, answer, opened.view.headers(selection.head))


def _check_range(begin: int | None, end: int | None) -> None:
    """Raises InvalidInput."""
    for name, value in (("event_from", begin), ("event_before", end)):
        if value is not None and not TIME_MIN <= value <= TIME_MAX + 1:
            raise InvalidInput(f"{show(value)} given, {TIME_MIN} to {TIME_MAX + 1} is allowed", name)
    if begin is not None and end is not None and end <= begin:
        raise InvalidInput(f"{end} given, it must be above event_from, {begin}", "event_before")


def _range(seen: Seen, begin: int | None, end: int | None) -> tuple[int, int]:
    """From which time on, and before which; by default, those of all events that were read."""
    earliest, latest = seen.range() or (0, 0)
    if begin is None:
        begin = earliest if end is None else min(earliest, end - 1)
    return begin, max(begin, latest) + 1 if end is None else end


def _shown(totals: dict[str, list[int]], times: list[int], types_max: int | None) -> list[EventBucketOut]:
    """The buckets; by type, those that have most events in all of them."""
    sums = {name: sum(total) for name, total in totals.items() if name != OTHERS}
    names = sorted((name for name in sums if sums[name]), key=lambda name: (-sums[name], name))[: types_max or 0]
    return [
        EventBucketOut(
            times[index],
            sum(total[index] for total in totals.values()),
            msgspec.UNSET
            if types_max is None
            else {name: totals[name][index] for name in names if totals[name][index]},
        )
        for index in range(len(times) - 1)
    ]
