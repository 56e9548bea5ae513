"""All kinds of clients on one server, which is left alone, then visited, then killed; and what they have in the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from .clients import TRIMMED, Reader
from .operators import Listener, Manager, Passer, Trimmer
from .place import LOG, current_state
from .readers import READERS, READERS_AGAIN, FutoinTrimmed
from .run import CATCH_UP_S, Faulty, Run, end, start
from .server import MortalServer
from .vitals import Bounds, Sampler, Stretch, faults_of_stretch, stretch_of
from .writers import STAGED_WRITER, WRITERS, Filler, Staged

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


class Soak(Run):
    """One run."""

    def __init__(
        self, folder: Path, seconds: float, seed: int = 0, told: Callable[[str], object] = lambda _: None
    ) -> None:
        super().__init__(seed, told)
        self._seconds = seconds
        self.growth: list[str] = []
        """Faults that do not end the run."""
        self.stretches: list[Stretch] = []
        self.server = MortalServer(folder)
        place = self.server.place
        self.writers = self.make(place, [*WRITERS, Filler])
        self.readers = self.make(place, [FutoinTrimmed, *READERS])
        self.again: list[Reader] = []
        self.trimmer = Trimmer(place, self.writers[-1], self.readers[0])
        self.manager, self.listener = Manager(place), Listener(place)
        self.others = self.adopt([self.trimmer, self.manager, self.listener])
        self.passers: list[Passer] = []
        self.sampler = Sampler(lambda: self.server.pids, self.acknowledged)

    def run(self) -> list[str]:
        """Run, and answer all faults that were found."""
        with self.server:
            try:
                self.sampler.start()
                self.begin()
                self._live_through()
                self.catch_up()
                self._read_again()
                self._compare_all()
            except Faulty:
                pass
            except AssertionError as error:
                self.faults.append(str(error))
            finally:
                self.give_up()
                self.sampler.stop()
        return self.all_faults() + self.growth

    def all_faults(self) -> list[str]:
        return [*super().all_faults(), *self.server.faults]

    def check(self) -> None:
        self.server.look()
        super().check()

    # The stretches

    def _live_through(self) -> None:
        self._told("nobody is killed: memory and open files")
        calm_until = time.monotonic() + self._seconds * CALM
        warm_until = time.monotonic() + self._seconds * CALM * WARM_UP
        while time.monotonic() < warm_until and self.acknowledged() < WARM_UP_EVENTS:
            self.wait(0.5)
        self._judge_stretch("load", lambda: self.wait(calm_until - time.monotonic()))
        self._told("others come and go")
        self.passers = self.adopt([Passer(self.server.place) for _ in range(2)])
        self._judge_stretch("load, and visits", self._be_visited)
        for client in self.everybody:
            if client.losses:
                self.faults.append(f"{type(client).__name__} lost its connection, and nobody was killed")
        self._told("the server is killed")
        self._kill_again_and_again(time.monotonic() + self._seconds * (1 - CALM - VISITS))

    def _be_visited(self) -> None:
        """Visitors come in the middle: before and after, as many connections are open."""
        self.wait(min(5.0, self._seconds * VISITS / 4))
        self.others += self.passers
        start(self.passers)
        self.wait(self._seconds * VISITS / 2)
        end(self.passers)
        self.wait(min(5.0, self._seconds * VISITS / 4))

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
            self.wait(self._chance.uniform(*KILL_AFTER_S))
            ends[KILLS[kills] if kills < len(KILLS) else self._chance.choice(KILLS)]()
            kills += 1

    def _read_again(self) -> None:
        """Everything is read once more by each."""
        self.until(lambda: self.trimmer.first_retained > 1, CATCH_UP_S, "anything to be trimmed")
        self._told("all is read once more")
        place, book = self.server.place, self.books[LOG]
        self.again = self.adopt([kind(place, book, f"{kind.name}, once more") for kind in READERS_AGAIN])
        self.readers = [*self.readers, *self.again]
        start(self.again)
        last = book.markers and max(book.markers)
        for reader in self.again:
            self.until(lambda r=reader: r.after >= last, CATCH_UP_S, f"{reader.page.name} to read all")

    def _compare_all(self) -> None:
        with self.server.place.client() as server:
            retained = [event.sequence_number for event in server.log(TRIMMED).read()]
            head = server.log(TRIMMED).head()
        if retained != list(range(head + 1 - len(retained), head + 1)):
            self.faults.append(f"{TRIMMED} has gaps: its head is {head}, what is left of it is {retained[:10]} ...")
        [stored] = [reader.page for reader in self.again if reader.name == "dcb_read"]
        self.compare({number: self.books[LOG].markers[number] for number in stored.numbers})
        self._compare_last_words()

    def _compare_last_words(self) -> None:
        """What is kept beside the log: the state of a resource, and how far the exactly-once writer is."""
        place = self.server.place
        by_name = {writer.name: writer for writer in self.writers}
        if last := list(by_name["cne"].acknowledged)[-1:]:
            [value] = current_state(place)["data"]["values"]
            if value["value"] != self.books[LOG].text(last[0]):
                self.faults.append(f"the current state is {value['value'][:40]}, {last[0]} came last")
        with place.bulk_client() as client:
            state = client.writer(LOG, STAGED_WRITER)
        batches = len(by_name["staged"].acknowledged) // Staged.together
        if (state is None and batches) or (
            state is not None and (state.batch, state.is_complete) != (batches - 1, True)
        ):
            self.faults.append(f"the exactly-once writer is at {state}, {batches} batches are acknowledged")
