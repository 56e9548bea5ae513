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


def test_an_older_answer_does_not_shorten_a_lease():
    lease = Lease((1, 7), 1, sent_at=100.0, renew_at=0.0)
    lease.renewed(102.0)
    lease.renewed(101.0)
    assert lease.held_until(TIMES) == pytest.approx(102.0 + 10 / 3)
