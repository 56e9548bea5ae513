"""What the page about leases computes is what the servers go by."""

from __future__ import annotations

import pytest

from headwater.homes.lease import LeaseTimes

from .documents import ROOT, table_after

ROWS = table_after(ROOT / "docs" / "guides" / "lease-and-standby.md", "lease")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_times_of_a_lease_are_those_that_servers_go_by(row):
    times = LeaseTimes(length_s=float(row[0].removesuffix(" s")))
    survived_s = times.held_s - times.renewal_s
    soonest_s, latest_s = times.length_s - times.renewal_s, times.length_s + times.jitter_s
    assert row[1:4] == [f"{shown:.2f} s" for shown in (times.renewal_s, times.held_s, survived_s)]
    assert row[4] == f"{soonest_s:.1f} to {latest_s:.1f} s"


def test_the_lease_that_is_set_if_nothing_is_said_is_among_them():
    assert f"{LeaseTimes().length_s:g} s" in [row[0] for row in ROWS]
