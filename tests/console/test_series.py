"""Rings: what was measured when, what was not, and which logs there is room for."""

from __future__ import annotations

import math

import pytest

from headwater.console.lag_series import CONSUMERS_MAX, LagSeries
from headwater.console.rings import COARSE, COARSE_S, FINE, FINE_S, Ring
from headwater.console.series import (
    LOG_PEAKS,
    LOG_SERIES,
    SERIES_MAX,
    SERVER_GAUGES,
    SERVER_PEAKS,
    SERVER_SERIES,
    LogSample,
    Series,
)
from headwater.core.followers import Lag
from headwater.core.log import SECONDS_MAX, Peaks

from .hosting import sample


def counts(value: float) -> tuple[float, ...]:
    return (value,) * len(LOG_SERIES)


def test_a_ring_keeps_the_newest_and_a_gap_is_a_gap():
    ring = Ring(4)
    assert ring.values(10) == [None] * 4
    for step, value in ((10, 1.0), (11, 2.0), (13, 4.0)):
        ring.put(step, value)
    assert ring.values(13) == [1.0, 2.0, None, 4.0]
    assert ring.values(14) == [2.0, None, 4.0, None]
    assert ring.values(17) == [None] * 4
    ring.put(100, 5.0)
    assert ring.values(100) == [None, None, None, 5.0]
    ring.put(100, 6.0)
    assert ring.values(100)[-1] == 6.0
    ring.put(96, 7.0)
    assert ring.values(97) == [None, None, 7.0, None], "a clock that was set back by more than there is room for"
    ring.put(97, 8.0)
    assert ring.values(97) == [None, None, 7.0, 8.0]
    assert ring.values(100) == [8.0, None, None, None], "what came before that is gone"


def test_counts_become_what_they_grew_by_in_a_second():
    series = Series()
    series.add(sample(1000.0, 10.0, orders=counts(100)))
    assert series.values("requests", None, FINE_S, 1000.0)[-1] is None
    series.add(sample(1005.0, 20.0, orders=counts(600)))
    assert series.values("requests", None, FINE_S, 1005.0)[-2:] == [None, 2.0]
    assert series.values("events_appended", "orders", FINE_S, 1005.0)[-1] == 100.0
    assert series.values("streams", None, FINE_S, 1005.0)[-2:] == [10.0, 20.0]
    assert len(series.values("requests", None, FINE_S, 1005.0)) == FINE
    assert len(series.values("requests", None, COARSE_S, 1005.0)) == COARSE


def test_a_log_that_was_not_there_before_had_counted_nothing():
    series = Series()
    series.add(sample(1000.0))
    series.add(sample(1005.0, 0.0, orders=counts(20_000)))
    assert series.values("events_appended", "orders", FINE_S, 1005.0)[-2:] == [None, 4000.0]


def test_a_minute_is_the_mean_of_what_was_measured_in_it():
    series = Series()
    for step in range(13):
        series.add(sample(1020.0 + FINE_S * step, 10.0 * step))
    assert series.values("requests", None, COARSE_S, 1020.0)[-1] == 2.0
    assert series.values("streams", None, COARSE_S, 1020.0)[-1] == pytest.approx(55.0)


def test_the_longest_of_a_minute_is_not_lost_in_its_mean():
    series = Series()
    for step, longest in enumerate((0.0, 0.001, 0.5, 0.002)):
        logs = {"orders": LogSample(0, counts(0), (longest,)), "others": LogSample(0, counts(0), (0.25,))}
        series.add(sample(1020.0 + FINE_S * step)._replace(logs=logs))
    assert series.values("commit_seconds_max", "orders", FINE_S, 1035.0)[-3:] == pytest.approx([0.001, 0.5, 0.002])
    assert series.values("commit_seconds_max", "orders", COARSE_S, 1035.0)[-1] == 0.5
    assert series.values("commit_seconds_max", None, FINE_S, 1035.0)[-4:] == pytest.approx([0.25, 0.25, 0.5, 0.25])
    assert series.values("commit_seconds_max", None, COARSE_S, 1035.0)[-1] == 0.5


def test_peaks_are_those_of_the_last_seconds():
    peaks = Peaks()
    assert peaks.since(0) == 0.0
    for second, value in ((1, 0.5), (1, 0.2), (3, 0.1), (3, 0.3)):
        peaks.add(second, value)
    assert [peaks.since(second) for second in (0, 1, 2, 3, 4)] == [0.5, 0.5, 0.3, 0.3, 0.0]
    for second in range(4, 4 + SECONDS_MAX):
        peaks.add(second, 0.01)
    assert peaks.since(0) == 0.01


def test_what_counts_from_nothing_again_and_a_clock_that_goes_back_make_no_rate():
    series = Series()
    for at, count in ((1000.0, 100.0), (1005.0, 5.0), (1005.0, 50.0), (990.0, 60.0), (1010.0, 70.0)):
        series.add(sample(at, count))
    found = series.values("requests", None, FINE_S, 1010.0)
    assert found[-3:] == [None, 0.0, 0.5]
    assert all(value is None or not math.isnan(value) for value in found)


def test_series_that_there_are_not_are_none():
    series = Series()
    series.add(sample(1000.0, 0.0, orders=counts(0)))
    series.add(sample(1005.0, 0.0, orders=counts(0)))
    assert list(series.logs) == ["orders"]
    assert series.values("nothing", None, FINE_S, 1005.0) is None
    assert series.values("streams", "orders", FINE_S, 1005.0) is None
    assert series.values("commits", "nothing", FINE_S, 1005.0) is None
    series.add(sample(1010.0))
    assert list(series.logs) == []  # deleted


def test_there_is_room_for_so_many_logs_and_the_busiest_have_it():
    of_server = len(SERVER_SERIES) + len(SERVER_GAUGES) + len(SERVER_PEAKS)
    series = Series(of_server + 2 * (len(LOG_SERIES) + len(LOG_PEAKS)))
    series.add(sample(1000.0, 0.0, a=counts(0), b=counts(0), c=counts(0)))
    series.add(sample(1005.0, 0.0, a=counts(0), b=counts(0), c=counts(0)))
    assert set(series.logs) == {"a", "b"}
    series.add(sample(1010.0, 0.0, a=counts(5), b=counts(0), c=counts(0)))
    series.add(sample(1015.0, 0.0, a=counts(5), b=counts(0), c=counts(5)))
    assert set(series.logs) == {"a", "c"}
    assert series.values("commits", "c", FINE_S, 1015.0)[-1] == 1.0
    assert Series()._logs_max * len(LOG_SERIES) + 10 <= SERIES_MAX


@pytest.mark.parametrize("name", ["orders/billing/a%2Fb", "group:orders/workers", "durable:orders/shop/"])
def test_how_far_behind_a_consumer_was_is_in_numbers_and_in_time(name: str):
    series = Series()
    for at, lag in ((1000.0, Lag(7, 2500)), (1005.0, Lag(0, 0)), (1015.0, Lag(3, 500))):
        series.add(sample(at), {name: lag})
    assert list(series.consumers) == [name]
    assert series.values("lag_events", name, FINE_S, 1015.0)[-4:] == [7.0, 0.0, None, 3.0]
    assert series.values("lag_seconds", name, FINE_S, 1015.0)[-4:] == [2.5, 0.0, None, 0.5]
    assert series.values("lag_seconds", "orders/billing/other", FINE_S, 1015.0) is None
    assert series.values("lag_seconds", None, FINE_S, 1015.0) is None


def test_there_is_room_for_so_many_consumers_and_those_measured_last_have_it():
    series = LagSeries(2)
    series.add(1000.0, {"a": Lag(3, 0), "b": Lag(2, 0), "c": Lag(1, 0)})
    assert list(series.names) == ["a", "b"]
    series.add(1005.0, {"c": Lag(9, 0), "b": Lag(2, 0)})
    assert set(series.names) == {"b", "c"}
    assert series.values("lag_events", "b", FINE_S, 1005.0)[-2:] == [2.0, 2.0]
    series.add(1005.0 + FINE * FINE_S + 1, {"b": Lag(2, 0)})
    assert list(series.names) == ["b"], "of whom nothing was measured for an hour is forgotten"
    assert CONSUMERS_MAX * 2 * (FINE + COARSE) * 4 < 2_000_000
