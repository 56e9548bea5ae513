"""kill -9 in mid-append: what was acknowledged is there, once and in order."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping

from headwater.client import RemoteLog, ServerUnreachable
from headwater.core import Event, Query
from headwater.core.errors import OutcomeUnknown

from ..stage import LOG, Stage

TITLE = "kill -9"
ROUNDS = 3
APPENDERS = 4
APPEND_S = 1.0
APPENDS_MIN = 100
"""The server is killed after so many seconds, and not before every client got so many answers."""
ANSWERS_WITHIN_S = 60.0
BATCH_EVENTS = 3
"""Of each append: so that half of one would show."""


class Appender(threading.Thread):
    """A client that appends, one call after the other, until the server is gone; it remembers what it was told."""

    def __init__(self, log: RemoteLog, name: str) -> None:
        super().__init__(name=name)
        self._log = log
        self.acknowledged: dict[str, int] = {}
        """Number by id, in the order of appending."""
        self.unanswered: list[Event] = []
        """The one append that was on its way when the server died."""
        self.error: Exception | None = None

    def run(self) -> None:
        """Append until no answer comes."""
        turn = 0
        while self.error is None and not self.unanswered:
            turn += 1
            events = [
                Event("Ping", b"x" * 100, (f"appender:{self.name}",), f"{self.name}-{turn}-{part}")
                for part in range(BATCH_EVENTS)
            ]
            try:
                first = self._log.append(events).first
                self.acknowledged |= {event.id: first + part for part, event in enumerate(events)}
            except (ServerUnreachable, OutcomeUnknown):
                self.unanswered = events
            except Exception as error:  # shown by the main thread
                self.error = error


def play(stage: Stage) -> None:
    """Kill the server under load, a few times, and compare."""
    acknowledged: dict[str, int] = {}
    unanswered: list[list[Event]] = []
    head_before = stage.log().head()
    for number in range(1, ROUNDS + 1):
        appenders = [
            Appender(stage.client(retry_s=0).log(LOG), f"{number}-{letter}") for letter in "abcdefgh"[:APPENDERS]
        ]
        for appender in appenders:
            appender.start()
        _await_load(appenders)
        pid = stage.server.pid
        stage.server.kill()
        for appender in appenders:
            appender.join()
            if appender.error is not None:
                raise appender.error
            acknowledged |= appender.acknowledged
            unanswered.append(appender.unanswered)
        started = time.perf_counter()
        stage.server.start()
        stage.log().head()  # logs open when they are first asked for
        seconds = time.perf_counter() - started
        stage.say(
            f"kill -9 {pid} while {APPENDERS} clients appended; "
            f"{len(acknowledged):,} events acknowledged so far; [bold]back after {seconds:.1f} s[/]"
        )
    log = stage.log()
    found = _in_the_log(log)
    _check(acknowledged, found)
    stored = _settle(log, unanswered, found)
    in_all = head_before + len(_in_the_log(log))
    assert log.info().events == in_all, f"{log.info().events} events are in the log, not {in_all}"
    stage.say(
        f"all [bold green]{len(acknowledged):,}[/] acknowledged events are there: once, at the numbers that were told, "
        f"in order, no append in half"
    )
    stage.say(
        f"{len(unanswered)} appends were never answered: {stored} of them had gone in, {len(unanswered) - stored} had "
        f"not; repeated with the same ids, each is there once"
    )
    stage.note(f"acknowledged, found after {ROUNDS} times kill -9", f"{len(acknowledged):,} of {len(acknowledged):,}")


def _await_load(appenders: list[Appender]) -> None:
    time.sleep(APPEND_S)
    patience_ends = time.monotonic() + ANSWERS_WITHIN_S
    while any(len(appender.acknowledged) < APPENDS_MIN and appender.is_alive() for appender in appenders):
        assert time.monotonic() < patience_ends, "the server answers too slowly to be killed under load"
        time.sleep(0.05)


def _in_the_log(log: RemoteLog) -> dict[str, int]:
    """Number by id of all that any appender left in the log, in order of the log."""
    events = list(log.read(Query.where(tags=["appender"])))
    times = Counter(event.id for event in events)
    twice = [id for id, count in times.items() if count > 1]
    assert not twice, f"{twice[0]} is there twice"
    return {event.id: event.sequence_number for event in events}


def _check(acknowledged: Mapping[str, int], found: Mapping[str, int]) -> None:
    for id, number in acknowledged.items():
        assert found.get(id) == number, f"{id} was acknowledged as event {number}, and is {found.get(id)}"
    for name in {id.rsplit("-", 2)[0] for id in found}:
        order = [tuple(map(int, id.rsplit("-", 2)[1:])) for id in found if id.startswith(f"{name}-")]
        assert order == sorted(order), f"the events of appender {name} are out of order"
        assert len(order) % BATCH_EVENTS == 0, f"an append of {name} is there in half"


def _settle(log: RemoteLog, unanswered: list[list[Event]], found: Mapping[str, int]) -> int:
    """Repeat what was not answered; answers how many appends had gone in before."""
    stored = 0
    for events in filter(None, unanswered):
        result = log.append(events)
        assert result.was_stored == (events[0].id in found), f"{events[0].id} was not recognised"
        stored += result.was_stored
    return stored
