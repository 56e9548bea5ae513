"""The times of a lease in the guide are those that servers use."""

from __future__ import annotations

from headwater.homes.roles.lease import LeaseTimes

from .documents import ROOT, check_none, name_of, table_after

PAGE = ROOT / "docs" / "guides" / "high-availability.md"
ROWS = table_after(PAGE, "lease")


def _computed(lease: str) -> list[str]:
    """What servers make of a length of a lease: the cells of its row."""
    times = LeaseTimes(length_s=float(lease.removesuffix(" s")))
    soonest_s, latest_s = times.length_s - times.renewal_s, times.length_s + times.jitter_s
    exact = (times.renewal_s, times.held_s, times.held_s - times.renewal_s)
    return [*(f"{each:.2f} s" for each in exact), f"{soonest_s:.1f} to {latest_s:.1f} s"]


def test_times_of_a_lease_are_those_that_servers_go_by() -> None:
    check_none(
        f"{name_of(PAGE)}: row {row[0]}: {row[1:5]}; servers go by {computed}"
        for row in ROWS
        if row[1:5] != (computed := _computed(row[0]))
    )


def test_the_lease_that_is_set_if_nothing_is_said_is_among_them():
    assert f"{LeaseTimes().length_s:g} s" in [row[0] for row in ROWS]
