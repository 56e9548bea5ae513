"""The bulk process ends where it holds too much: gRPC takes messages of any size before it asks anybody."""

from __future__ import annotations

import threading

from headwater.core.shared_bytes import MIB
from headwater.server.bulk import memory_guard


def test_what_it_had_when_it_began_its_budget_and_the_slack_are_allowed() -> None:
    begun, ended = 100 * MIB, threading.Event()
    held = iter([begun, begun, begun + 8 * MIB, begun + 8 * MIB + memory_guard.SLACK_BYTES])
    last = threading.Event()

    def look() -> int:
        try:
            return next(held)
        except StopIteration:
            last.set()
            return begun

    watching = memory_guard.watch(8 * MIB, ended.set, look=look)
    assert last.wait(30)
    assert not ended.is_set()
    watching.set()


def test_more_ends_it() -> None:
    held, ended = iter([100 * MIB, 100 * MIB, 100 * MIB + 8 * MIB + memory_guard.SLACK_BYTES + 1]), threading.Event()
    memory_guard.watch(8 * MIB, ended.set, look=lambda: next(held))
    assert ended.wait(30)


def test_the_anonymous_memory_of_this_process_is_known() -> None:
    assert MIB < memory_guard.anonymous_bytes() < 2**40


def test_before_it_ends_connections_are_ended() -> None:
    near = 100 * MIB + 8 * MIB + memory_guard.SLACK_BYTES
    held, ended, relieved = iter([100 * MIB, 100 * MIB, near, near + 1]), threading.Event(), list[None]()
    memory_guard.watch(8 * MIB, ended.set, lambda: relieved.append(None), lambda: next(held))
    assert ended.wait(30)
    assert len(relieved) == 1
