"""What do listeners to what happens in the server cost appends? `python -m benchmarks.listeners`

Appends of one event, 64 in flight, one in 16 with a condition that fails, so that there is something to tell. In turn,
in short slices on one log, so that what else the machine does hits all contenders: nobody looks at counters and
consumers; they are looked at (ten times as often as the server does) and nobody listens; one listener filters
everything out; 100 listeners take everything. Then the cost of one `emit`. The CPU time is that of the whole process,
the listeners' thread included. Ratios are taken within a round; shown is their median, and the middle half of them.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from headwater.core import AppendCondition, Bus, Event, NotificationType, Query
from headwater.core.local import LocalLog
from headwater.core.log import AppendRequest
from headwater.management.notifications.consumers import ConsumerWatch
from headwater.management.notifications.queue import NotificationQueue
from headwater.management.notifications.summaries import Summaries
from headwater.storage import Engine

from . import machine

IN_FLIGHT = 64
ONE_FAILS_IN = 16
LOOK_S = 0.1
LISTENERS = (0, 1, 100)
NOBODY_LOOKS, NOBODY, ONE, MANY = "nobody looks", "0 listeners", "1 listener, which filters all out", "100 listeners"
CONTENDERS = (NOBODY_LOOKS, NOBODY, ONE, MANY)
FAILING = AppendCondition(Query.where(types=["Placed"]))
EVENT = Event("Placed", b"x" * 200, ("order:17", "customer:ann"))


class Load:
    """Appends on one log, so many in flight."""

    def __init__(self, log: LocalLog) -> None:
        self._log, self._room = log, threading.Semaphore(IN_FLIGHT)
        log.append([EVENT])

    def run(self, seconds: float) -> int:
        """Append for that long; answers how many attempts were answered."""
        until, count = time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            for _ in range(IN_FLIGHT):
                self._room.acquire()
                condition = None if count % ONE_FAILS_IN else FAILING
                self._log.submit(self._log.request([EVENT], condition, None, self._answered))
                count += 1
        for _ in range(IN_FLIGHT):
            self._room.acquire()
        self._room.release(IN_FLIGHT)
        return count

    def _answered(self, requests: list[AppendRequest]) -> None:
        self._room.release(len(requests))


@contextmanager
def looking(engine: Engine) -> Iterator[None]:
    """Counters and consumers are looked at."""
    looks = (
        Summaries(engine.bus, engine.opened).look,
        ConsumerWatch(engine.bus, engine.opened, lag_events=10**9, lag_ms=10**9).look,
    )
    with _repeating(lambda: [look() for look in looks]):
        yield


@contextmanager
def listening(bus: Bus, count: int, accepts: bool) -> Iterator[list[int]]:
    """So many listeners, whose queues one thread empties; the list gets how many notifications each has taken."""
    awake, is_over, taken = threading.Event(), threading.Event(), [0] * count
    queues = [NotificationQueue(bus, awake.set, accepts=lambda _: accepts) for _ in range(count)]

    def consume() -> None:
        while not is_over.is_set():
            awake.wait()
            awake.clear()
            for number, queue in enumerate(queues):
                while found := queue.take(100):
                    taken[number] += len(found)

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    try:
        yield taken
    finally:
        is_over.set()
        awake.set()
        thread.join()
        for queue in queues:
            queue.close()


@contextmanager
def _repeating(work: Callable[[], object]) -> Iterator[None]:
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(LOOK_S):
            work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def contend(engine: Engine, load: Load, contender: str, seconds: float) -> tuple[float, float]:
    """One slice: attempts per second, and CPU time per attempt in us."""
    with ExitStack() as stack:
        if contender != NOBODY_LOOKS:
            stack.enter_context(looking(engine))
        if contender == ONE:
            stack.enter_context(listening(engine.bus, 1, accepts=False))
        if contender == MANY:
            stack.enter_context(listening(engine.bus, 100, accepts=True))
        began, cpu = time.perf_counter(), time.process_time()
        count = load.run(seconds)
        return count / (time.perf_counter() - began), (time.process_time() - cpu) / count * 1e6


def emit_ns(count: int, times: int) -> float:
    """CPU time of one emit where it happens, with so many listeners."""
    bus = Bus()
    for _ in range(count):
        NotificationQueue(bus, lambda: None, waiting_max=100)
    began = time.thread_time_ns()
    for _ in range(times):
        bus.emit(
            NotificationType.CONSUMER_REGISTERED, log="orders", owner="spark", component="archiver", acknowledged=1
        )
    return (time.thread_time_ns() - began) / times


@click.command()
@click.option("--rounds", default=30, show_default=True, help="Each contender runs once in each.")
@click.option("--slice-s", default=0.5, show_default=True, help="How long it runs.")
@click.option("--directory", type=click.Path(path_type=Path), help="Where to put the files.")
def main(rounds: int, slice_s: float, directory: Path | None) -> None:
    """What do listeners to what happens in the server cost appends?"""
    parent = directory or Path("build")
    parent.mkdir(parents=True, exist_ok=True)
    for name, value in machine.describe(parent).items():
        click.echo(f"{name}: {value}")
    sys.setswitchinterval(0.0005)
    results: dict[str, list[tuple[float, float]]] = {contender: [] for contender in CONTENDERS}
    with tempfile.TemporaryDirectory(dir=parent) as path, Engine(path, bus=Bus()) as engine:
        log = engine.create("bench")
        log.register_consumer("spark", "archiver")
        load = Load(log)
        load.run(slice_s)
        for turn in range(rounds):
            for contender in (*CONTENDERS[turn % 4 :], *CONTENDERS[: turn % 4]):
                results[contender].append(contend(engine, load, contender, slice_s))
    show(results)
    for count in LISTENERS:
        click.echo(f"one emit, {count} listeners: {emit_ns(count, max(100, int(100_000 * slice_s))):,.0f} ns")


def show(results: dict[str, list[tuple[float, float]]]) -> None:
    """A row for each contender: medians, and by how much it differs from the first in its own rounds."""
    base = results[NOBODY_LOOKS]
    click.echo(f"{'':36}{'attempts/s':>12}{'CPU us':>9}   {'CPU against the first row'}")
    for contender, samples in results.items():
        ratios = [(its / first - 1) * 100 for (_, its), (_, first) in zip(samples, base, strict=True)]
        rate, cpu = (statistics.median(column) for column in zip(*samples, strict=True))
        click.echo(f"{contender:36}{rate:12,.0f}{cpu:9.1f}   {_spread(ratios)}")


def _spread(ratios: Sequence[float]) -> str:
    middle = statistics.median(ratios)
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (middle, middle, middle)
    return f"{middle:+.1f} % ({low:+.1f} to {high:+.1f})"


if __name__ == "__main__":
    main()
