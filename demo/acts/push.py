"""FutoIn: a registered consumer gets a year of departures pushed, is killed in the middle of it, and comes back."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from headwater.core import Event, Query

from ..consumer import COMPONENT
from ..flights import DEPARTED
from ..stage import LOG, Stage

TITLE = "A consumer that is killed, and comes back"
OWNER = "airport"
ALIAS = "FLIGHT_DEPARTED"
KILLS = 3
LIVE_EVENTS = 25
PATIENCE_S = 120.0
ACKNOWLEDGED_WITHIN_S = 10.0


def play(stage: Stage) -> None:
    """Push, kill, push the rest, and compare with the log; then measure how long an event takes."""
    log = stage.log()
    departures = [event.sequence_number for event in log.read(Query.where(types=[DEPARTED]))]
    diary = stage.directory / "departures.txt"
    stage.say(
        f"the consumer [bold]{OWNER}:{COMPONENT}[/] wants the type {ALIAS}: the {len(departures):,} {DEPARTED} events, "
        f"by an alias, pushed over a WebSocket"
    )
    started = time.perf_counter()
    consumer = _Consumer(stage, diary)
    try:
        for number in range(1, KILLS + 1):
            consumer.await_lines(number * len(departures) // (KILLS + 1))
            consumer.kill()
            stage.say(f"  kill -9 of the consumer after {len(_numbers(diary)):,} events")
            consumer.start()
        consumer.await_number(departures[-1])
        seconds = time.perf_counter() - started
        received = _numbers(diary)
        _check(departures, received)
        repeats = len(received) - len(set(received))
        again = f"the {repeats:,} that were on their way then came again" if repeats else "none of them twice"
        stage.say(f"all [bold green]{len(departures):,}[/] came, each at its place ({seconds:.1f} s); {again}")
        stage.note("events pushed to a FutoIn consumer, killed on the way", f"{len(departures):,} in {seconds:.1f} s")
        _measure_latency(stage, consumer)
        _show_position(stage)
    finally:
        consumer.kill()


class _Consumer:
    """The process of demo.consumer, and the diary that it writes."""

    def __init__(self, stage: Stage, diary: Path) -> None:
        self._url = f"ws{stage.server.url.removeprefix('http')}/futoin/{LOG}"
        self._errors = stage.directory / "consumer.log"
        self.diary = diary
        diary.touch()
        self.start()

    def start(self) -> None:
        """Start it; it goes on where it was."""
        command = [sys.executable, "-m", "demo.consumer", self._url, str(self.diary), ALIAS]
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.wait()

    def await_lines(self, count: int) -> None:
        """Wait until it has received so many events."""
        self._await(lambda: self.diary.read_bytes().count(b"\n") >= count, f"{count} events")

    def await_number(self, number: int) -> None:
        """Wait until it has received that event."""
        self._await(lambda: _numbers(self.diary)[-1:] == [number], f"event {number}")

    def _await(self, is_there, what: str) -> None:  # type: ignore[no-untyped-def]
        deadline = time.monotonic() + PATIENCE_S
        while not is_there():
            assert self._process.poll() is None, f"the consumer ended: {self._errors.read_text().strip()[-200:]}"
            assert time.monotonic() < deadline, f"the consumer did not get {what} within {PATIENCE_S:g} s"
            time.sleep(0.02)


def _check(expected: list[int], received: list[int]) -> None:
    """Raises AssertionError unless each expected event was received, first of all in order."""
    first_seen = list(dict.fromkeys(received))
    assert first_seen == expected, (
        f"{len(first_seen)} departures were received first, not {len(expected)} in their order"
    )


def _measure_latency(stage: Stage, consumer: _Consumer) -> None:
    log = stage.log()
    delays_ms = []
    for number in range(LIVE_EVENTS):
        sent = time.time_ns() // 1_000_000
        event = log.append([Event(DEPARTED, b"{}", (f"flight:DEMO{number}",))]).last
        consumer.await_number(event)
        delays_ms.append(int(consumer.diary.read_bytes().split()[-1]) - sent)
    median = statistics.median(delays_ms)
    stage.say(f"a new departure takes [bold]{median:.0f} ms[/] (median of {LIVE_EVENTS}) from its append to the diary")
    stage.note("from append to a consumer's diary", f"{median:.0f} ms (median)")


def _show_position(stage: Stage) -> None:
    log = stage.log()
    deadline = time.monotonic() + ACKNOWLEDGED_WITHIN_S
    while True:
        (consumer,) = (its for its in log.consumers() if (its.owner, its.component) == (OWNER, COMPONENT))
        if consumer.acknowledged == log.head() or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    assert consumer.acknowledged == log.head(), f"{consumer.acknowledged} is acknowledged, not {log.head()}"
    stage.say(f"[bold]headwater consumers list {LOG}[/] says: acknowledged {consumer.acknowledged:,}, behind 0")
    log.unregister_consumer(OWNER, COMPONENT)


def _numbers(diary: Path) -> list[int]:
    """The ids in the diary; a line that was being written when the consumer was killed is none."""
    lines = diary.read_bytes().split(b"\n")[:-1]
    return [int(line.split()[0]) for line in lines]
