"""What a schedule is judged by: everything that anybody was told, held against what the home has in the end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from headwater.homes.roles.lease import Term
from headwater.homes.roles.machine import Role

from .model_home import STATE, Frame

if TYPE_CHECKING:
    from .model_server import ModelServer, Request
    from .simulator import World

CLOCK_AHEAD_MAX = 3.0
"""Seconds that a time of an event may be ahead of the home's: 2 s, and half a round trip that says anything."""


class Judge:
    """Finds what must not be. Each finding is (rule, what happened); the first of each rule is kept."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.findings: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self._at: dict[tuple[int, str, int], str] = {}
        """What anybody ever saw at a number."""
        self._number: dict[tuple[int, str, str], int] = {}
        self._stored: list[tuple[Request, int]] = []
        self._failed: set[tuple[str, int]] = set()
        self._conflicts: set[tuple[str, str]] = set()
        self._accepted = 0
        self._coordinating: tuple[int, str] = (0, "")
        self.was_told = False
        """An operator was told that the home went back, at least once."""
        self._told_at = float("-inf")
        self._to_be_told: list[tuple[float, str]] = []
        """Since when a home was set back in silence, and what it did then: an operator must be told after that."""
        self.overlap_s = 0.0
        self._first_act: dict[int, float] = {}

    def find(self, rule: str, what: str) -> None:
        self.counts[rule] += 1
        self.findings.setdefault(rule, f"at {self.world.now:.3f} s: {what}")

    def _find_unless_set_back(self, rule: str, what: str) -> None:
        """The same; but a home that was set back in silence cannot know: numbers and terms are given again until a copy
        is compared, and then an operator is told.
        """
        since = self.world.home.set_back_at
        if not self.world.silent or since is None:
            self.find(rule, what)
            return
        self.counts["given again until it was noticed"] += 1
        self._to_be_told.append((since, f"{rule}: {what}"))

    @property
    def _went_back(self) -> bool:
        """Whether the home lacks anything that it had; that was set back in silence may lack a term alone."""
        home = self.world.home
        return home.has_forgotten or (self.world.silent and home.set_back_at is not None)

    # While it runs

    def seen(self, incarnation: int, frame: Frame) -> None:
        """A copy that is read from has this frame now."""
        if frame.log == STATE:
            return
        for number, (event_id, _, _key) in enumerate(frame.entries, frame.first):
            self._see(incarnation, frame.log, number, event_id)

    def _see(self, incarnation: int, log: str, number: int, event_id: str) -> None:
        other = self._at.setdefault((incarnation, log, number), event_id)
        if other != event_id:
            self._find_unless_set_back("one order", f"{log} {number} is {event_id}, and was {other}")
        there = self._number.setdefault((incarnation, log, event_id), number)
        if there != number:
            self._find_unless_set_back("renumbered", f"{log}: {event_id} has number {number}, and had {there}")

    def committed(self, frame: Frame) -> None:
        """The home has this frame now."""
        self.counts["commits"] += 1
        if frame.term[0] < self._accepted:
            what = f"{frame.log} {frame.first} by term {frame.term[0]}, {self._accepted} accepts already"
            self._find_unless_set_back("fenced", what)

    def granted(self, term: Term) -> None:
        """The home gives a lease."""
        if known := [row.seen[0] for row in self.world.home.members.values() if row.seen[0] > term[0]]:
            self.find("known term", f"term {term[0]} begins, and a member knows term {max(known)}")

    def stamped(self, server: ModelServer) -> None:
        """A server gives a frame its time. One whose clock was set wrong just now may not know it yet."""
        world = self.world
        ahead = server.clock() - world.home.clock()
        knows = world.now - server.stepped_at > world.times.held_s / server.rate
        if ahead > CLOCK_AHEAD_MAX and knows and not world.clock_jumps:
            self.find("time", f"{server.name} appends, and its clock is {ahead:.1f} s ahead of its home's")

    def accepted(self, server: str, term: Term) -> None:
        """A server accepts appends. Others may still hold themselves for primary."""
        others = [other for name, other in self.world.servers.items() if name != server and other.is_up]
        zombies = sum(other.roles.role is Role.PRIMARY for other in others)
        home = self.world.home
        open_heads = [log for log, row in home.heads.items() if row.term[0] < term[0]]
        if open_heads and not home.is_changed and not self._went_back:
            self.find("whole fence", f"{server} accepts in term {term[0]}, and {open_heads} have an older one")
        self.counts["zombies"] += zombies > 0
        self.counts["two zombies"] += zombies > 1
        self._accepted = max(self._accepted, term[0])
        self.counts["takeovers"] += 1

    def coordinates(self, server: str, term: Term | None) -> None:
        """A server starts coordinators."""
        assert term is not None
        self._coordinating = max(self._coordinating, (term[0], server))
        self._first_act.setdefault(term[0], self.world.now)

    def acted(self, server: str, term: Term) -> None:
        """A coordinator did something."""
        newest = self._coordinating[0]
        if term[0] < newest:
            overlap = self.world.now - self._first_act[newest]
            self.overlap_s = max(self.overlap_s, overlap)
            if overlap > self.world.overlap_max:
                self._find_unless_set_back(
                    "overlap", f"{server} acts in term {term[0]}, {overlap:.2f} s after term {newest} began"
                )

    def delivers(self, server: str, log: str, position: int, floor: int) -> None:
        """A coordinator goes on behind a position."""
        if floor > position:
            self.find("positions", f"{server} goes on at {log} {position}, and {floor} was trimmed")

    def told(self, server: str, what: str) -> None:
        """An operator was told."""
        if what in ("home-went-back", "home-changed"):
            self.was_told, self._told_at = True, self.world.now
            self.world.call_a_person()
            home = self.world.home
            if not home.was_weakened and (home.keeps_all or not (self._went_back or home.timeline > 1)):
                self.find("false alarm", f"{server} tells {what}, and the home forgot nothing")

    def replied(self, incarnation: int, request: Request, outcome: str, number: int) -> None:
        """A client was answered, whether or not the answer reaches it."""
        self.counts[outcome] += 1
        if outcome == "stored":
            self._stored.append((request, number))
            if request.mark is None:
                self._see(incarnation, request.log, number, request.ids[-1])
        elif outcome == "failed":
            self._failed.add((request.ids[0], request.attempt))
        elif outcome == "conflict":
            self._conflicts.add((request.log, request.ids[0]))

    # In the end

    def conclude(self) -> None:
        """Hold all of it against what the home has."""
        home = self.world.home
        ids: Counter[tuple[str, str]] = Counter()
        marks: Counter[tuple[str, Any]] = Counter()
        winners: dict[tuple[str, str], set[str]] = {}
        for log, chain in home.frames.items():
            self._chain(log, chain)
            if log == STATE:
                self._journal(chain)
                continue
            for frame in chain:
                marks[log, frame.mark] += frame.mark is not None
                for event_id, attempt, key in frame.entries:
                    ids[log, event_id] += 1
                    if key is not None:
                        winners.setdefault((log, key), set()).add(event_id)
                    if (event_id, attempt) in self._failed:
                        self.find("failed", f"{log}: try {attempt} of {event_id} was told to have failed, and is there")
                    if (log, event_id) in self._conflicts and (home.keeps_all or not home.has_forgotten):
                        self.find("failed", f"{log}: {event_id} was told a conflict, and is there")
        for (log, event_id), count in ids.items():
            if count > 1:
                self.find("doubled", f"{log}: {event_id} is there {count} times")
        for (log, mark), count in marks.items():
            if count > 1:
                self.find("batch doubled", f"{log}: batch {mark} is there {count} times")
        for (log, key), who in winners.items():
            if len(who) > 1:
                self.find("one winner", f"{log}: {key} was won by {sorted(who)}")
        self._lost(ids, marks)
        if self._has_witness(ids):
            for since, what in self._to_be_told:
                if self._told_at < since:
                    self.find("set back in silence", what)
        if home.keeps_all:
            self._read(ids)

    def _read(self, ids: Counter[tuple[str, str]]) -> None:
        """What somebody read at a copy is there, as what was acknowledged."""
        for _, log, event_id in self._number:
            if not ids[log, event_id]:
                self.find("read and lost", f"{log}: {event_id} was in a copy")

    def _lost(self, ids: Counter[tuple[str, str]], marks: Counter[tuple[str, Any]]) -> None:
        home = self.world.home
        forgotten_ids = {entry[0] for frame in home.forgotten if frame.log != STATE for entry in frame.entries}
        forgotten_marks = {frame.mark for frame in home.forgotten}
        for request, number in self._stored:
            if request.mark is not None:
                is_there, is_forgotten = marks[request.log, request.mark] > 0, request.mark in forgotten_marks
            else:
                is_there, is_forgotten = ids[request.log, request.ids[0]] > 0, request.ids[0] in forgotten_ids
            if is_there:
                continue
            if home.keeps_all or not is_forgotten:
                self.find("lost", f"{request.log} {number}: {request.ids[0]} was acknowledged")
            elif not self.was_told and (not self.world.silent or self._has_witness(ids)):
                self.find("forgotten in silence", f"{request.log} {number}: {request.ids[0]} was acknowledged")

    def _has_witness(self, ids: Counter[tuple[str, str]]) -> bool:
        """Whether a copy has an event that the home lacks: where none survives, a loss does not show."""
        return any(not ids[each] for server in self.world.servers.values() for each in server.copy.ids)

    def _chain(self, log: str, chain: list[Frame]) -> None:
        number = prev = 0
        for frame in chain:
            if frame.first != number + 1 or frame.prev != prev:
                self.find("forked", f"{log} {frame.first} does not follow {number}")
                return
            number, prev = frame.last, frame.crc

    def _journal(self, chain: list[Frame]) -> None:
        positions: dict[str, int] = {}
        for frame in chain:
            for entry in frame.entries:
                if entry[0] == "position":
                    if entry[2] < positions.get(entry[1], 0):
                        self.find("positions", f"the position in {entry[1]} went back to {entry[2]}")
                    positions[entry[1]] = entry[2]
                elif entry[0] == "trim" and entry[2] > positions.get(entry[1], 0):
                    self.find("positions", f"{entry[1]} was trimmed to {entry[2]} before its position got there")
