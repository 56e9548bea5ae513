"""All kinds of clients on one server, which is left alone, then visited, then killed; and what they have in the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from headwater.client import connect
from headwater.flight.client import BulkClient
from tests.hostile.neighbours import LOG
from tests.server.running import SILENCE_S_MAX

from .book import Book, faults_of_reader, faults_of_writer
from .clients import (
    READERS,
    READERS_AGAIN,
    STAGED_WRITER,
    TRIMMED,
    TRIMMED_REPEATS,
    WRITERS,
    Filler,
    FutoinTrimmed,
    Lasting,
    LastingReader,
    LastingWriter,
    Staged,
    Webhook,
    current_state,
)
from .operators import Listener, Manager, Passer, Trimmer
from .server import MortalServer
from .vitals import Bounds, Sampler, Stretch, faults_of_stretch, stretch_of

CALM, VISITS = 1 / 3, 1 / 8
"""Parts of the time; the rest is for kills."""
WARM_UP_EVENTS = 50_000
"""By then threads have started, caches are full and the first segments have doubled: memory stays from here on."""
WARM_UP = 0.6
"""The part of the calm that this may take. Where it takes longer, memory is not judged closely."""
MEMORY_MIB_COLD = 100.0
KILLS = ("SIGKILL", "bulk", "SIGKILL", "SIGTERM")
"""The first ends of the server, in turn; later ones are drawn from these."""
KILL_AFTER_S = (1.0, 6.0)
KILLS_MIN = 2
PATIENCE_S = 300.0
"""How long readers may take to catch up in the end."""
BOUNDS = {
    "server": Bounds(rss_mib=36, rss_mib_per_100k_events=24, connections=8, files=24),
    "bulk": Bounds(rss_mib=24, rss_mib_per_100k_events=0, connections=8, files=24),
}
"""What may stay, after the warm-up.

Memory: of a log, the server keeps the index of the newest events until their segment is sealed, and 22 to 44 bytes for
the id of each event. Where events have ids and tags of their own that was measured as 171 bytes each, 16 MiB per
100,000, and on top a table of ids that doubles at once: 20 MiB at 131,072 events, 30 at 786,432. Allowed are one
doubling and half as much again of the slope: the buffers of all front ends are not measured apart. The bulk process
keeps nothing of an event, but Arrow's pool gives pages back late. Connections: one more now and then, of writers over
HTTP. Files: a segment has one, and two of its index; segments double from 4 MiB on.
"""


class Row(NamedTuple):
    """One client in the table at the end."""

    kind: str
    name: str
    events: int
    again: int
    """Events that came more than once."""
    losses: int
    """How often it lost its connection."""


class Soak:
    """One run."""

    def __init__(self, folder: Path, seconds: float, seed: int = 0, told: Callable[[str], object] = lambda _: None):
        self._folder, self._seconds, self._told = folder, seconds, told
        self._chance = Random(seed)
        self.book, self.trimmed_book = Book(), Book(TRIMMED_REPEATS)
        self.faults: list[str] = []
        self.growth: list[str] = []
        """Faults that do not end the run."""
        self.stretches: list[Stretch] = []
        self.server = MortalServer(folder)
        place = self.server.place
        self.writers: list[LastingWriter] = [kind(place, self.book) for kind in WRITERS]
        self.filler = Filler(place, self.trimmed_book)
        self.readers: list[LastingReader] = [kind(place, self.book) for kind in READERS]
        self.again: list[LastingReader] = []
        self.holder = FutoinTrimmed(place, self.trimmed_book)
        self.trimmer = Trimmer(place, self.filler, self.holder)
        self.manager, self.listener = Manager(place), Listener(place)
        self.passers: list[Passer] = []
        self.sampler = Sampler(lambda: self.server.pids, self.acknowledged)

    def run(self) -> list[str]:
        """Run, and answer all faults that were found."""
        with self.server:
            try:
                self._begin()
                self._live_through()
                self._catch_up()
                self._compare()
            except Faulty:
                pass
            except AssertionError as error:
                self.faults.append(str(error))
            finally:
                self._told("the clients end")
                for client in self._everybody():
                    client.is_given_up = True
                self._end(self._everybody())
                self.sampler.stop()
        return self._all_faults() + self.growth

    def acknowledged(self) -> int:
        """Events, of all writers."""
        return sum(len(writer.acknowledged) for writer in (*self.writers, self.filler))

    def rows(self) -> list[Row]:
        """What each client did."""
        writers = [
            Row("writes", its.name, len(its.acknowledged), 0, its.losses) for its in (*self.writers, self.filler)
        ]
        readers = [
            Row("reads", its.page.name, len(its.page.numbers), its.page.repeats, its.losses)
            for its in (*self.readers, self.holder, *self.again)
        ]
        return writers + readers

    # The stretches

    def _begin(self) -> None:
        self._start([self.holder, *self.readers])
        [webhook] = [each for each in self.readers if isinstance(each, Webhook)]
        self._until(webhook.is_ready.is_set, SILENCE_S_MAX, "a webhook to be registered")
        self._start([*self.writers, self.filler, self.trimmer, self.manager, self.listener])
        self.sampler.start()

    def _live_through(self) -> None:
        self._told("nobody is killed: memory and open files")
        calm_until = time.monotonic() + self._seconds * CALM
        warm_until = time.monotonic() + self._seconds * CALM * WARM_UP
        while time.monotonic() < warm_until and self.acknowledged() < WARM_UP_EVENTS:
            self._wait(0.5)
        self._judge_stretch("load", lambda: self._wait(calm_until - time.monotonic()))
        self._told("others come and go")
        self.passers = [Passer(self.server.place) for _ in range(2)]
        self._judge_stretch("load, and visits", self._be_visited)
        for client in self._everybody():
            if client.losses:
                self.faults.append(f"{type(client).__name__} lost its connection, and nobody was killed")
        self._told("the server is killed")
        self._kill_again_and_again(time.monotonic() + self._seconds * (1 - CALM - VISITS))

    def _be_visited(self) -> None:
        """Visitors come in the middle: before and after, as many connections are open."""
        self._wait(min(5.0, self._seconds * VISITS / 4))
        self._start(self.passers)
        self._wait(self._seconds * VISITS / 2)
        self._end(self.passers)
        self._wait(min(5.0, self._seconds * VISITS / 4))

    def _judge_stretch(self, name: str, live: Callable[[], object]) -> None:
        began = time.monotonic()
        live()
        for role, bounds in BOUNDS.items():
            stretch = stretch_of(name, self.sampler.since(began, role))
            self.stretches.append(stretch)
            if stretch.first.events < WARM_UP_EVENTS:
                bounds = bounds._replace(rss_mib=MEMORY_MIB_COLD)
            self.growth += faults_of_stretch(stretch, bounds)

    def _kill_again_and_again(self, until: float) -> None:
        ends = {"SIGKILL": self.server.kill, "bulk": self.server.kill_bulk, "SIGTERM": self.server.stop}
        kills = 0
        while time.monotonic() < until or kills < KILLS_MIN:
            self._wait(self._chance.uniform(*KILL_AFTER_S))
            ends[KILLS[kills] if kills < len(KILLS) else self._chance.choice(KILLS)]()
            kills += 1

    def _catch_up(self) -> None:
        """Writers end; each reader gets to the end; then everything is read once more by each."""
        self._told("writers end, readers catch up")
        self._end([*self.writers, self.filler])
        for reader in (*self.readers, self.holder):
            writers = [*self.writers, self.filler]
            mine = [its for its in writers if its.log == reader.log and _is_for(reader, its)]
            last = max((its.told.get(marker, 0) for its in mine for marker in list(its.told)[-1:]), default=0)
            count = sum(len(its.acknowledged) for its in mine)
            self._until(
                lambda r=reader, n=count, m=last: len(r.page.numbers) >= n and r.after >= m,
                PATIENCE_S,
                f"{reader.page.name} to catch up",
            )
        self._until(lambda: self.trimmer.first_retained > 1, PATIENCE_S, "anything to be trimmed")
        self._told("all is read once more")
        self.again = [kind(self.server.place, self.book, f"{kind.name}, once more") for kind in READERS_AGAIN]
        self._start(self.again)
        last = self.book.markers and max(self.book.markers)
        for reader in self.again:
            self._until(lambda r=reader: r.after >= last, PATIENCE_S, f"{reader.page.name} to read all")

    def _compare(self) -> None:
        place = self.server.place
        self._told("everything is compared")
        with connect(place.http, user=place.user, password=place.password) as server:
            retained = [event.sequence_number for event in server.log(TRIMMED).read()]
            head = server.log(TRIMMED).head()
        if retained != list(range(head + 1 - len(retained), head + 1)):
            self.faults.append(f"{TRIMMED} has gaps: its head is {head}, what is left of it is {retained[:10]} ...")
        [stored] = [reader.page for reader in self.again if reader.name == "dcb_read"]
        by_number = {number: self.book.markers[number] for number in stored.numbers}
        for writer in self.writers:
            self.faults += faults_of_writer(
                writer.name, list(writer.acknowledged), writer.under_way, writer.told, by_number
            )
        filler = self.filler
        its = dict(sorted(self.trimmed_book.markers.items()))
        self.faults += faults_of_writer(filler.name, list(filler.acknowledged), filler.under_way, filler.told, its)
        for reader in (*self.readers, *self.again):
            self.faults += faults_of_reader(reader.page, by_number, reader.writers)
        self._compare_last_words()

    def _compare_last_words(self) -> None:
        """What is kept beside the log: the state of a resource, and how far the exactly-once writer is."""
        place = self.server.place
        by_name = {writer.name: writer for writer in self.writers}
        if last := list(by_name["cne"].acknowledged)[-1:]:
            [value] = current_state(place)["data"]["values"]
            if value["value"] != self.book.text(last[0]):
                self.faults.append(f"the current state is {value['value'][:40]}, {last[0]} came last")
        with BulkClient(place.flight, user=place.user, password=place.password) as client:
            state = client.writer(LOG, STAGED_WRITER)
        batches = len(by_name["staged"].acknowledged) // Staged.together
        if (state is None and batches) or (
            state is not None and (state.batch, state.is_complete) != (batches - 1, True)
        ):
            self.faults.append(f"the exactly-once writer is at {state}, {batches} batches are acknowledged")

    # Everybody

    def _everybody(self) -> Sequence[Lasting]:
        others = (self.filler, self.holder, self.trimmer, self.manager, self.listener)
        return [*self.writers, *self.readers, *self.again, *self.passers, *others]

    def _start(self, clients: Sequence[Lasting]) -> None:
        for client in clients:
            client.start()

    def _end(self, clients: Sequence[Lasting]) -> None:
        started = [client for client in clients if client.is_started]
        for client in started:
            client.end()
        for client in started:
            client.stop()

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._check()
            time.sleep(min(left, 0.5))

    def _until(self, holds: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            self._check()
            if time.monotonic() > deadline:
                self.faults.append(f"{what} did not come to pass in {seconds:g} s")
                raise Faulty
            time.sleep(0.05)

    def _check(self) -> None:
        """Raises Faulty as soon as anything is wrong."""
        self.server.look()
        if self._all_faults():
            raise Faulty

    def _all_faults(self) -> list[str]:
        clients = [f"{type(its).__name__} ended with {its.fault!r}" for its in self._everybody() if its.fault]
        return [*self.faults, *self.server.faults, *self.book.faults, *self.trimmed_book.faults, *clients]


class Faulty(Exception):
    """Something is wrong; what, is in the lists of faults."""


def _is_for(reader: LastingReader, writer: LastingWriter) -> bool:
    return reader.writers is None or writer.name in reader.writers
