from __future__ import annotations

import pytest

from headwater.core.errors import Closed, Overloaded
from headwater.flight.errors import Busy
from headwater.formats.clients.retry import BUSY_S, PAUSE_S_MAX, Attempts


def test_attempts_pause_longer_and_longer_but_never_shorter_than_asked() -> None:
    pauses: list[float] = []
    attempts = Attempts(retries=3, sleep=pauses.append)
    attempts.failed(Closed("x"))
    attempts.failed(Closed("x"))
    attempts.failed(Overloaded(1, 1, 5.0))
    assert 0.025 <= pauses[0] <= 0.05 <= pauses[1] <= 0.1
    assert pauses[2] == 5.0
    with pytest.raises(Closed):
        attempts.failed(Closed("x"))
    attempts.succeeded()
    attempts.failed(Closed("x"))


def test_waiting_for_a_busy_server_is_no_failed_attempt_but_has_an_end() -> None:
    pauses: list[float] = []
    attempts = Attempts(retries=1, sleep=pauses.append)
    with pytest.raises(Busy):
        while True:
            attempts.failed(Busy("reads", 1), is_busy=True)
    assert BUSY_S < sum(pauses) < BUSY_S + PAUSE_S_MAX
    with pytest.raises(Busy):
        Attempts(retries=0, sleep=pauses.append).failed(Busy("reads", 1), is_busy=True)


def test_no_attempt_begins_later_than_it_may() -> None:
    pauses: list[float] = []
    attempts = Attempts(within_s=3.0, sleep=pauses.append)
    attempts.failed(Overloaded(1, 1, 2.5))
    with pytest.raises(Overloaded):
        attempts.failed(Overloaded(1, 1, 3.5))
    assert pauses == [2.5]
