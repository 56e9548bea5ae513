"""What programs written for an earlier version import."""

from __future__ import annotations

from headwater import core


def test_names_of_0_1_0_still_work() -> None:
    assert core.EventType is core.NotificationType
