"""What every run has: clients, what they wrote and saw, and judges who hold it against what is stored."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from random import Random
from traceback import extract_tb
from typing import Any, NamedTuple, Self

from headwater.core.errors import EventLogError

from .clients import TRIMMED, Client, Reader, Writer
from .ledger import Book, faults_of_reader, faults_of_writer, marker_in
from .losses import Losses, server_ended
from .place import LOG, Place
from .readers import Webhook

TRIMMED_REPEATS = 256
"""Events of the log that forgets have 16 KiB, so that segments fill."""
CATCH_UP_S = 300.0
"""How long readers may take to catch up in the end."""
TELL_S = 10.0
Told = Callable[[str], object]


class Faulty(Exception):
    """Something is wrong; what, is in the lists of faults."""


class Row(NamedTuple):
    """One client in the table at the end."""

    kind: str
    name: str
    events: int
    again: int = 0
    """Events that came more than once."""
    losses: int = 0


class Table(NamedTuple):
    """A part of a run's report; the first two columns are text."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[object]]


class Repeating:
    """Does something every so many seconds, on a thread of its own; a context manager."""

    def __init__(self, act: Callable[[], object], interval_s: float) -> None:
        self._act, self._interval_s = act, interval_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc_info: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(self._interval_s):
            self._act()


class Run:
    """Clients on servers for some time: begin, live and finish. A context manager, which ends clients and servers.

    `seed` repeats what chance decides, but not how threads and processes meet.
    """

    patience_s = CATCH_UP_S

    def __init__(
        self, place: Place, seconds: float, seed: int = 0, told: Told = lambda _: None, is_lost: Losses = server_ended
    ) -> None:
        """`place` is where its clients connect; `is_lost` says when they connect anew."""
        self.place, self.seconds, self.seed, self._told, self._is_lost = place, seconds, seed, told, is_lost
        self._chance = Random(seed)
        self.books = {LOG: Book(), TRIMMED: Book(TRIMMED_REPEATS)}
        self.faults: list[str] = []
        self.writers: list[Writer] = []
        self.readers: list[Reader] = []
        self.others: list[Client] = []
        """Those who neither write to the log nor follow it."""
        self.servers = ExitStack()
        """What ends with the run."""
        self._tell_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for client in self.everybody:
            client.is_given_up = True
            client.end()
        self.servers.close()
        end(self.everybody)

    def run(self) -> list[str]:
        """The whole of it; answers all faults that were found."""
        with self:
            try:
                self.begin()
                self.live()
                self.finish()
            except Faulty:
                pass
            except (AssertionError, EventLogError) as error:
                stack = reversed(extract_tb(error.__traceback__))
                where = " < ".join(f"{frame.name}:{frame.lineno}" for frame in stack)
                self.faults.append(f"{type(error).__name__}: {error} at {where}")
            return self.all_faults()

    def begin(self) -> None:
        """All start, readers first. Raises Faulty, as all that follows."""
        start(self.readers)
        for reader in self.readers:
            if isinstance(reader, Webhook):
                self.until(reader.is_ready.is_set, CATCH_UP_S, "a webhook to be registered")
        start([*self.writers, *self.others])

    def live(self) -> None:
        self.wait(self.seconds)

    def finish(self) -> None:
        """All is read and compared, and all end."""
        self.catch_up()
        self._told("everything is compared")
        self.compare(stored_in(self.place))
        end(self.everybody)
        self.check()

    # Clients

    def make(self, *kinds: Callable[..., Any]) -> list[Any]:
        return self.adopt(*(kind(self.place, self.books[getattr(kind, "log", LOG)]) for kind in kinds))

    def adopt(self, *clients: Any) -> list[Any]:
        """Have clients decide by the seed, and outlive what this run does to the server."""
        for client in clients:
            client.chance.seed(f"{self.seed} {client.name}")
            client.is_lost = self._is_lost
        return list(clients)

    @property
    def everybody(self) -> list[Client]:
        return [*self.writers, *self.readers, *self.others]

    def acknowledged(self) -> int:
        return sum(len(writer.acknowledged) for writer in self.writers)

    def rows(self) -> list[Row]:
        rows = [Row("writes", its.name, len(its.acknowledged), 0, its.losses) for its in self.writers]
        pages = [(its.page, its.losses) for its in self.readers]
        return rows + [Row("reads", page.name, len(page.numbers), page.repeats, losses) for page, losses in pages]

    def report(self) -> Iterator[Table | str]:
        """What to tell at the end: tables, and lines."""
        yield Table(type(self).__name__, ("does", "client", "events", "again", "connections lost"), self.rows())

    def progress(self) -> str:
        """A line now and then."""
        return f"{self.acknowledged():,} acknowledged"

    # Waiting, while nobody is at fault

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.check()
            if time.monotonic() > self._tell_at:
                self._tell_at = time.monotonic() + TELL_S
                self._told(f"  {self.progress()}")
            time.sleep(min(left, 0.5))

    def until(
        self, holds: Callable[[], bool], seconds: float, what: str, instead: Callable[[], str] = lambda: ""
    ) -> None:
        """Wait for something that must come to pass."""
        deadline = time.monotonic() + seconds
        while not holds():
            self.check()
            if time.monotonic() > deadline:
                stand = [f"{its.name} at {its.stands_at[:300]}" for its in self.everybody if its.is_started]
                self.faults.append(f"{what} did not come to pass in {seconds:g} s; {instead()}; {'; '.join(stand)}")
                raise Faulty
            time.sleep(0.05)

    def check(self) -> None:
        """Raises Faulty as soon as anything is wrong."""
        if self.all_faults():
            raise Faulty

    def all_faults(self) -> list[str]:
        clients = [f"{type(its).__name__} ended with {its.fault!r}" for its in self.everybody if its.fault]
        return [*self.faults, *(fault for book in self.books.values() for fault in book.faults), *clients]

    # Judging

    def catch_up(self) -> None:
        """Writers end, and each reader gets to the end."""
        self._told("writers end, readers catch up")
        end(self.writers)
        for reader in self.readers:
            mine = [writer for writer in self.writers if reader.sees(writer)]
            last = max((its.told.get(marker, 0) for its in mine for marker in list(its.told)[-1:]), default=0)
            count = sum(len(its.acknowledged) for its in mine)
            self.until(
                lambda r=reader, n=count, m=last: len(r.page.numbers) >= n and r.after >= m,
                self.patience_s,
                f"{reader.page.name} to catch up",
            )

    def compare(self, stored: Mapping[int, str]) -> None:
        """Hold what writers were told and readers saw against the markers in the log, by number.

        What is in the log that forgets is known by its readers only.
        """
        seen = self.books[LOG].markers
        if differing := [n for n in sorted(stored.keys() | seen.keys()) if stored.get(n) != seen.get(n)]:
            self.faults.append(f"readers saw other events than the log has: {differing[:10]}")
        for writer in self.writers:
            its = stored if writer.log == LOG else dict(sorted(self.books[writer.log].markers.items()))
            under_way = writer.under_way
            self.faults += faults_of_writer(writer.name, list(writer.acknowledged), under_way, writer.told, its)
        for reader in self.readers:
            if reader.log == LOG:
                self.faults += faults_of_reader(reader.page, stored, reader.writers)


def stored_in(place: Place, log: str = LOG) -> dict[int, str]:
    """The markers in a log, by number."""
    with place.client() as server:
        return {event.sequence_number: marker_in(event.data) for event in server.log(log).read()}


def start(clients: Sequence[Client]) -> None:
    for client in clients:
        client.start()


def end(clients: Sequence[Client]) -> None:
    """They end, and are waited for."""
    started = [client for client in clients if client.is_started]
    for client in started:
        client.end()
    for client in started:
        client.stop()
