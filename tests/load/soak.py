"""All kinds of clients on one server, which is left alone, and then killed; and what they have in the end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import own_anonymous_bytes

from .clients import TRIMMED
from .operators import Listener, Manager, Trimmer
from .place import LOG, current_state
from .readers import READERS, READERS_AGAIN, FutoinTrimmed
from .run import CATCH_UP_S, Repeating, Table, Told, start
from .server import MortalServer, OneServer, open_files
from .writers import STAGED_WRITER, WRITERS, Filler, Staged

MIB = 2**20
CALM = 0.4
"""A part of the time; the rest is for kills."""
WARM_UP_EVENTS = 50_000
"""By then threads have started, caches are full and the first segments have doubled: memory stays from here on."""
WARM_UP = 0.6
"""The part of the calm that this may take. Where it takes longer, memory is not judged closely."""
MEMORY_MIB_COLD = 100.0
KILLS = ("SIGKILL", "bulk", "SIGKILL", "SIGTERM")
"""The first ends of the server, in turn; later ones are drawn from these."""
KILL_AFTER_S = (1.0, 6.0)
KILLS_MIN = 2
SAMPLE_S = 0.25


class Vitals(NamedTuple):
    at: float
    """By the monotonic clock, in s."""
    role: str
    rss_mib: float
    """Anonymous memory that is resident: what is not cached file content."""
    connections: int
    """Sockets, pipes and the like that are open."""
    files: int
    """Files that are open: those of logs, one for each of their segments."""
    events: int
    """Acknowledged by then, by all writers."""


class Bounds(NamedTuple):
    """How much more may stay in the last third of a stretch than in its first third."""

    rss_mib: float
    rss_mib_per_100k_events: float
    connections: int
    files: int


class Stretch(NamedTuple):
    """One process over some time without kills: the least of everything in the first and in the last third of it.

    So what comes and goes does not count, only what stays.
    """

    first: Vitals
    last: Vitals

    @classmethod
    def of(cls, samples: Sequence[Vitals]) -> Stretch:
        """The stretch in which these samples of one process were taken."""
        third = max(1, len(samples) // 3)
        parts = (samples[:third], samples[-third:])
        return cls(*(Vitals(*(min(values) for values in zip(*part, strict=True))) for part in parts))

    def faults(self, bounds: Bounds) -> list[str]:
        """Whether the process stayed as it was."""
        events = self.last.events - self.first.events
        allowed = {
            "rss_mib": bounds.rss_mib + bounds.rss_mib_per_100k_events * events / 100_000,
            "connections": bounds.connections,
            "files": bounds.files,
        }
        changes = [(its, getattr(self.first, its), getattr(self.last, its), more) for its, more in allowed.items()]
        return [
            f"{self.first.role} process: {its} went from {first:.1f} to {last:.1f} over {events:,} "
            f"events, {more:.1f} more are allowed"
            for its, first, last, more in changes
            if last > first + more
        ]


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


class Soak(OneServer):
    def __init__(self, folder: Path, seconds: float, seed: int = 0, told: Told = lambda _: None) -> None:
        super().__init__(MortalServer(folder), seconds, seed, told)
        self.growth: list[str] = []
        """Faults that do not end the run."""
        self.stretches: list[Stretch] = []
        self.writers = self.make(*WRITERS, Filler)
        self.readers = self.make(FutoinTrimmed, *READERS)
        self.trimmer = Trimmer(self.place, self.writers[-1], self.readers[0])
        self.manager, self.listener = Manager(self.place), Listener(self.place)
        self.others = self.adopt(self.trimmer, self.manager, self.listener)
        self.samples: list[Vitals] = []

    def run(self) -> list[str]:
        with Repeating(self._sample, SAMPLE_S):
            return super().run() + self.growth

    def _sample(self) -> None:
        pids = self.server.pids
        for role, pid in pids._asdict().items() if pids else ():
            with suppress(FileNotFoundError, ProcessLookupError, StopIteration):  # it was killed
                its = (own_anonymous_bytes(pid) / MIB, *open_files(pid), self.acknowledged())
                self.samples.append(Vitals(time.monotonic(), role, *its))

    def live(self) -> None:
        """The server is left alone, and killed."""
        self._told("nobody is killed: memory and open files")
        calm_until = time.monotonic() + self.seconds * CALM
        warm_until = time.monotonic() + self.seconds * CALM * WARM_UP
        while time.monotonic() < warm_until and self.acknowledged() < WARM_UP_EVENTS:
            self.wait(0.5)
        began = time.monotonic()
        self.wait(calm_until - began)
        self._judge(began)
        for client in self.everybody:
            if client.losses:
                self.faults.append(f"{type(client).__name__} lost its connection, and nobody was killed")
        self._told("the server is killed")
        self._kill_again_and_again(time.monotonic() + self.seconds * (1 - CALM))

    def _judge(self, began: float) -> None:
        for role, bounds in BOUNDS.items():
            its = [sample for sample in self.samples if sample.at >= began and sample.role == role]
            self.stretches.append(stretch := Stretch.of(its))
            if stretch.first.events < WARM_UP_EVENTS:
                bounds = bounds._replace(rss_mib=MEMORY_MIB_COLD)
            self.growth += stretch.faults(bounds)

    def _kill_again_and_again(self, until: float) -> None:
        ends = {"SIGKILL": self.server.kill, "bulk": self.server.kill_bulk, "SIGTERM": self.server.stop}
        kills = 0
        while time.monotonic() < until or kills < KILLS_MIN:
            self.wait(self._chance.uniform(*KILL_AFTER_S))
            ends[KILLS[kills] if kills < len(KILLS) else self._chance.choice(KILLS)]()
            kills += 1

    def catch_up(self) -> None:
        """And everything is read once more by each."""
        super().catch_up()
        self.until(lambda: self.trimmer.first_retained > 1, CATCH_UP_S, "anything to be trimmed")
        self._told("all is read once more")
        again = self.make(*READERS_AGAIN)
        last = max(self.books[LOG].markers, default=0)
        self.readers = [*self.readers, *again]
        for reader in again:
            reader.page.name += ", once more"
        start(again)
        for reader in again:
            self.until(lambda r=reader: r.after >= last, CATCH_UP_S, f"{reader.page.name} to read all")

    def compare(self, stored: Mapping[int, str]) -> None:
        """And what is kept beside the log: what is left of the other, the state of a resource, and how far the
        exactly-once writer is."""
        super().compare(stored)
        with self.place.client() as server:
            retained = [event.sequence_number for event in server.log(TRIMMED).read()]
            head = server.log(TRIMMED).head()
        if retained != list(range(head + 1 - len(retained), head + 1)):
            self.faults.append(f"{TRIMMED} has gaps: its head is {head}, what is left of it is {retained[:10]} ...")
        by_name = {writer.name: writer for writer in self.writers}
        if last := list(by_name["cne"].acknowledged)[-1:]:
            [value] = current_state(self.place)["data"]["values"]
            if value["value"] != self.books[LOG].text(last[0]):
                self.faults.append(f"the current state is {value['value'][:40]}, {last[0]} came last")
        with self.place.bulk_client() as client:
            state = client.writer(LOG, STAGED_WRITER)
        batches = len(by_name["staged"].acknowledged) // Staged.together
        if (state and (state.batch, state.is_complete)) != ((batches - 1, True) if batches else None):
            self.faults.append(f"the exactly-once writer is at {state}, {batches} batches are acknowledged")

    def report(self) -> Iterator[Table | str]:
        rows = [
            (first.role, f"{last.events - first.events:,}", f"{first.rss_mib:.1f} to {last.rss_mib:.1f}",
             f"{first.connections} to {last.connections}", f"{first.files} to {last.files}")
            for first, last in self.stretches
        ]  # fmt: skip
        headings = ("process", "events", "RssAnon MiB", "connections", "files")
        yield Table("Memory and open files, without kills", headings, rows)
        yield f"ends: {dict(self.server.ends)}; managed: {dict(self.manager.answers)}; {self.trimmer.trims} trims"
        yield from super().report()
