"""How long a lease lasts, for those who give it and for those who hold it."""

from __future__ import annotations

import pytest

from headwater.homes.roles.lease import Lease, LeaseTimes

TIMES = LeaseTimes()


@pytest.mark.parametrize(("until", "is_free"), [(9.9, True), (10.0, True), (10.1, False), (15.0, False), (15.1, True)])
def test_a_lease_is_free_when_it_ended_and_when_it_would_last_longer_than_any(until, is_free):
    assert TIMES.is_free(until, 10.0) is is_free


@pytest.mark.parametrize("rate", [0.67, 0.8, 1.0, 1.25])
def test_a_holder_whose_clock_goes_at_two_thirds_of_the_homes_speed_or_faster_ends_first(rate):
    assert TIMES.held_s / rate < TIMES.length_s


def test_two_renewals_may_be_lost():
    lease = Lease((1, 7), 1, sent_at=100.0, renew_at=0.0)
    assert 100.0 + 3 * TIMES.renewal_s <= lease.held_until(TIMES)


@pytest.mark.parametrize(
    ("length_s", "round_trip_s", "told"),
    [
        (5.0, 1.1, None),
        (5.0, 1.2, "a lease of 5 s requires an answer within 1.1 s; set home_lease_ms to 7500 or more"),
        (15.0, 2.0, None),
        (15.0, 2.1, "clocks can be compared only within 2 s"),
    ],
)
def test_a_home_that_answers_too_late_for_a_lease_is_told_with_the_remedy(length_s, round_trip_s, told):
    found = LeaseTimes(length_s).too_slow(round_trip_s)
    assert found is None if told is None else told in found


def test_a_lease_that_is_proposed_is_kept():
    for round_trip_s in (0.7, 1.2, 1.7, 2.0):
        least_ms = int(LeaseTimes(0.5).too_slow(round_trip_s).partition("home_lease_ms to ")[2].split()[0])
        assert LeaseTimes(least_ms / 1000).too_slow(round_trip_s) is None


def test_an_older_answer_does_not_shorten_a_lease():
    lease = Lease((1, 7), 1, sent_at=100.0, renew_at=0.0)
    lease.renewed(102.0)
    lease.renewed(101.0)
    assert lease.held_until(TIMES) == pytest.approx(102.0 + 10 / 3)
