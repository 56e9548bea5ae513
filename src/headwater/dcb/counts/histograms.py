"""The position of a time in a log, and histograms by recording time or by the events' own times."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import msgspec

from ...core.access import Right
from ...core.errors import InvalidInput
from ...core.limits import SEQUENCE_NUMBER_MAX, show
from ...core.local import LocalLog
from ...core.query import Query
from ...core.reading import next_event
from ...formats import jsontext
from ...formats.budget.values import check_values
from ...http import Exchange
from ...http.errors import InvalidParameter
from ...http.exchange import as_json, whole_number
from .. import wire
from ..event_times import OTHERS, TIME_MAX, TIME_MIN, Seen
from ..host import Host
from ..queries import QUERY_VALUES_MAX, query_of
from .count import Tally
from .work_budget import Work

BUCKETS, BUCKETS_MAX = 60, 300
TYPES, TYPES_MAX = 5, 20
"""Types named in each bucket: default and maximum."""
HISTOGRAM_S_MAX = 1.0
"""CPU time for all buckets."""

Given = TypeVar("Given", wire.HistogramIn, wire.EventHistogramIn)


class Asked(NamedTuple, Generic[Given]):
    """A histogram request, checked except for its times."""

    given: Given
    query: Query
    buckets: int
    types_max: int | None
    """The maximum number of types named in each bucket; None: not by type."""


async def asked(exchange: Exchange, decoder: msgspec.json.Decoder[Given]) -> Asked[Given]:
    """The histogram request in a body. Raises InvalidInput, MalformedJson."""
    body = await exchange.json_body()
    check_values(body, QUERY_VALUES_MAX, "query")
    given = jsontext.decode(decoder, body)
    query = query_of(given.query, "query")
    buckets = _checked(given.buckets, BUCKETS, BUCKETS_MAX, "buckets", 1)
    types_max = _checked(given.types_max, TYPES, TYPES_MAX, "types_max", 0) if given.by_type else None
    return Asked(given, query, buckets, types_max)


def borders(begin: int, end: int, buckets: int) -> list[int]:
    """The start times of the buckets and the end of the last one; no bucket is shorter than 1 ms."""
    count = min(buckets, end - begin)
    return [begin + (end - begin) * index // count for index in range(count + 1)]


def _checked(given: int | None, default: int, most: int, name: str, least: int) -> int:
    if given is None:
        return default
    if not least <= given <= most:
        raise InvalidInput(f"expected {least} to {most}, got {show(given)}", name)
    return given


_decoder = msgspec.json.Decoder(wire.HistogramIn)


async def position(host: Host, exchange: Exchange) -> None:
    """GET /logs/{log}/position"""
    opened = await host.log(exchange, Right.READ)
    at = whole_number(exchange.parameters("at"), "at")
    if at is None:
        raise InvalidParameter("at", "is missing; expected a time in ms since 1970 UTC")
    found = await asyncio.to_thread(opened.log.sequence_number_at, at)
    await exchange.answer(200, as_json(wire.PositionOut(found, opened.log.head(), opened.view.incarnation)))


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
    answer = wire.HistogramOut(begin, end, buckets, is_complete, selection.head, opened.view.incarnation)
    await exchange.answer(200, as_json(answer), headers=opened.view.headers(selection.head))


def _range(log: LocalLog, begin: int | None, end: int | None) -> tuple[int, int]:
    """The start time and the end time (exclusive); by default, all of the log. Raises InvalidInput."""
    for name, value in (("recorded_from", begin), ("recorded_before", end)):
        if value is not None and not 0 <= value <= SEQUENCE_NUMBER_MAX:
            raise InvalidInput(f"expected 0 to {SEQUENCE_NUMBER_MAX}, got {show(value)}", name)
    if begin is None:
        first = next_event(log, 0)
        begin = first.recorded_at if first else end if end is not None else 0
    if end is None:
        last = next_event(log, log.head() + 1, backwards=True)
        end = max(begin, last.recorded_at if last else 0) + 1
    if end <= begin:
        raise InvalidInput(f"expected more than recorded_from ({begin}), got {end}", "recorded_before")
    return begin, end


def _numbers(log: LocalLog, times: list[int], head: int) -> Iterator[int]:
    """The first number at each time, or head + 1; one step each."""
    for time in times:
        yield min(log.sequence_number_at(time), head + 1)


def _shown(tallies: list[Tally], times: list[int], numbers: list[int], types_max: int | None) -> list[wire.BucketOut]:
    """The buckets; by type, with the types that have most events overall."""
    total = Tally(by_type=True)
    for tally in tallies:
        total.include(tally)
    names = total.shown(types_max or 0)[0]
    return [
        wire.BucketOut(
            times[index],
            numbers[index],
            tally.events,
            msgspec.UNSET if types_max is None else {name: tally.types[name] for name in names if tally.types[name]},
        )
        for index, tally in enumerate(tallies)
    ]


_event_decoder = msgspec.json.Decoder(wire.EventHistogramIn)


async def event_histogram(host: Host, exchange: Exchange) -> None:
    """POST /logs/{log}/event-histogram"""
    opened = await host.log(exchange, Right.READ)
    given, query, count, types_max = await asked(exchange, _event_decoder)
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
        begin, end = _range_of_events(seen, given.event_from, given.event_before)
        times = borders(begin, end, count)
        totals: dict[str, list[int]] = {}
        async for found in work.steps(seen.counted(times), is_bounded=False):
            for name, buckets in found.items():
                total = totals.setdefault(name, [0] * (len(times) - 1))
                for bucket, events in buckets:
                    total[bucket] += events
    answer = wire.EventHistogramOut(
        begin, end, _shown_events(totals, times, types_max), seen.events, seen.low, seen.high,
        seen.is_complete, selection.head, incarnation,
    )  # fmt: skip
    await exchange.answer(200, as_json(answer), headers=opened.view.headers(selection.head))


def _check_range(begin: int | None, end: int | None) -> None:
    """Raises InvalidInput."""
    for name, value in (("event_from", begin), ("event_before", end)):
        if value is not None and not TIME_MIN <= value <= TIME_MAX + 1:
            raise InvalidInput(f"expected {TIME_MIN} to {TIME_MAX + 1}, got {show(value)}", name)
    if begin is not None and end is not None and end <= begin:
        raise InvalidInput(f"expected more than event_from ({begin}), got {end}", "event_before")


def _range_of_events(seen: Seen, begin: int | None, end: int | None) -> tuple[int, int]:
    """The start time and the end time (exclusive); by default, the times of all events read."""
    earliest, latest = seen.range() or (0, 0)
    if begin is None:
        begin = earliest if end is None else min(earliest, end - 1)
    return begin, max(begin, latest) + 1 if end is None else end


def _shown_events(totals: dict[str, list[int]], times: list[int], types_max: int | None) -> list[wire.EventBucketOut]:
    """The buckets; by type, with the types that have most events overall."""
    sums = {name: sum(total) for name, total in totals.items() if name != OTHERS}
    names = sorted((name for name in sums if sums[name]), key=lambda name: (-sums[name], name))[: types_max or 0]
    return [
        wire.EventBucketOut(
            times[index],
            sum(total[index] for total in totals.values()),
            msgspec.UNSET
            if types_max is None
            else {name: totals[name][index] for name in names if totals[name][index]},
        )
        for index in range(len(times) - 1)
    ]
