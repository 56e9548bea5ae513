"""A shared home as a model: head rows, frames, the lease row, and a standby that may forget the newest.

Each method is one statement: all or nothing, at one moment. A rule that is broken on purpose is in `broken`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from headwater.homes.roles.lease import LeaseTimes, Term

STATE = "$state"
NOBODY: Term = (0, 0)


class Head(NamedTuple):
    """A head row."""

    number: int
    crc: int
    term: Term


EMPTY = Head(0, 0, NOBODY)
_MARKED = -1


class Frame(NamedTuple):
    """One group commit. An entry is (id, the try that it came by, key or None), in the journal an operation."""

    log: str
    first: int
    last: int
    prev: int
    crc: int
    nonce: int
    term: Term
    at: float
    entries: tuple[Any, ...]
    mark: tuple[str, int] | None = None


class Part(NamedTuple):
    """What one log has in a commit."""

    frame: Frame
    expected: Head


class LeaseRow(NamedTuple):
    holder: str
    term: Term
    until: float
    length: float


class MemberRow(NamedTuple):
    """What the copy of a server can prove."""

    copy: int
    seen: Term
    held: Term
    timeline: int
    """Of the history with which it was compared last."""
    is_ahead: bool


class Found(NamedTuple):
    """What a poll or a catch-up finds: where logs end, and what comes after the copy's."""

    incarnation: int
    is_refused: bool
    """Nobody gets the lease, and no comparison of copies changes that."""
    is_believed: bool
    timeline: int
    heads: dict[str, Head]
    frames: list[Frame]
    asked: dict[str, tuple[int, int]]
    """Where the copy ended when it asked."""
    forked: list[str]
    """Logs that have another frame where the copy ends."""


class ModelHome:
    """The home of one schedule."""

    def __init__(self, clock: Callable[[], float], times: LeaseTimes, broken: frozenset[str], keeps_all: bool) -> None:
        self._true_time = clock
        self.skew = 0.0
        self.times = times
        self.broken = broken
        self.keeps_all = keeps_all
        """Its standby is synchronous: a promotion is no other history."""
        self.is_down = False
        self.life = 0
        """Counts its starts: what was sent to another life never arrives."""
        self.lease: dict[str, LeaseRow] = {"": LeaseRow("", NOBODY, 0.0, 0.0)}
        self.heads: dict[str, Head] = {STATE: EMPTY, "a": EMPTY, "b": EMPTY}
        self.frames: dict[str, list[Frame]] = {STATE: [], "a": [], "b": []}
        self.nonces: dict[int, Frame] = {}
        self.floors: dict[str, int] = {}
        self.members: dict[tuple[str, int], MemberRow] = {}
        """By server and copy."""
        self.timeline = 1
        self.accepted: dict[str, int] = {"": 1}
        self.incarnation = 1
        self.forgotten: list[Frame] = []
        self.has_forgotten = False
        self.set_back_at: float | None = None
        """When it forgot anything last: frames, a term, a member."""
        self._changes: list[tuple[float, dict[Any, Any] | None, Any, Any]] = []
        self.standby_is_away = False
        """A synchronous standby does not answer: what is written waits, unseen."""
        self.waiting: tuple[Part, ...] | None = None
        """The commit that waits; what else would write waits behind it, and is not done."""
        self._unconfirmed: dict[str, Frame] = {}
        """What a crash made visible while it waited: the standby does not have it."""
        self._confirmed = 0
        self.waits_for_standby = self.is_declared = keeps_all
        """Whether commits wait for the standby that is promoted, and whether the owner says so."""
        self._left_at = 0
        """So many changes the standby has, since commits do not wait for it."""
        self.was_weakened = False
        self.ended: dict[str, float] = {}
        """When the sessions of a server were ended."""
        self.committed: Callable[[Frame], None] = lambda frame: None
        """What is told of each frame at its commit."""
        self.granted: Callable[[Term], None] = lambda term: None
        """What is told of each term when its lease is given."""

    def clock(self) -> float:
        """The home's time."""
        return self._true_time() + self.skew

    @property
    def is_changed(self) -> bool:
        """Whether nobody accepted this history."""
        accepted = self.accepted[""]
        return accepted == _MARKED or (accepted != self.timeline and "no-timeline" not in self.broken)

    @property
    def is_contradicted(self) -> bool:
        """Whether something is known to be missing."""
        number, rows = self.lease[""].term[0], self.members.values()
        term = self.heads[STATE].term
        is_foreign = any(row.seen[0] > number or (row.seen[0] == term[0] and row.seen != term) for row in rows)
        has_term = "terms-unasked" not in self.broken and is_foreign
        return has_term or ("ahead-unasked" not in self.broken and any(row.is_ahead for row in rows))

    @property
    def is_refused(self) -> bool:
        """Whether nobody gets the lease until a person has looked."""
        return self.accepted[""] == _MARKED or self.is_contradicted or self.is_weakened

    @property
    def is_weakened(self) -> bool:
        """Whether commits waited for the standby, as was declared, and do no more."""
        return self.is_declared and not self.waits_for_standby and "names-uncompared" not in self.broken

    @property
    def is_believed(self) -> bool:
        """Whether this has all that was committed, as far as is known."""
        return not self.is_refused and (not self.is_changed or self._is_proved())

    def _is_proved(self) -> bool:
        newest = max(row.term for row in self.heads.values())
        rows = self.members.values()
        is_whole = any(row.held == newest for row in rows) or "holder-unasked" in self.broken
        return is_whole and ("missing-unasked" in self.broken or all(row.timeline == self.timeline for row in rows))

    def enter_member(self, server: str, row: MemberRow) -> tuple[Any, ...]:
        if not self.is_changed or "replaced-when-changed" in self.broken:
            for other in [each for each in self.members if each[0] == server and each[1] != row.copy]:
                self._remove(self.members, other)
        if self.members.get((server, row.copy)) != row:
            self._set(self.members, (server, row.copy), row)
        return ("entered",)

    def _remove(self, table: dict[Any, Any], key: Any) -> None:
        self._changes.append((self._true_time(), table, key, table[key]))
        del table[key]

    def _set(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._changes.append((self._true_time(), table, key, table.get(key)))
        table[key] = value

    # The lease

    def try_lease(self, server: str, nonce: int, copy: int) -> tuple[Any, ...]:
        if not self.is_believed:
            return ("changed",) if self.is_refused else ("unproved",)
        if (server, copy) not in self.members:
            return ("refused", "", 0.0)
        row, now = self.lease[""], self.clock()
        free = row.until <= now if "any-until" in self.broken else self.times.is_free(row.until, now)
        is_mine = row.holder == server and (row.term[1] in (nonce, 0) or "lease-by-name" in self.broken)
        if not (free or is_mine):
            return ("refused", row.holder, row.until - now)
        term = row.term if is_mine and row.term[1] == nonce else (row.term[0] + 1, nonce)
        self.granted(term)
        self._set(self.lease, "", LeaseRow(server, term, now + self.times.length_s, self.times.length_s))
        self._set(self.accepted, "", self.timeline)
        return ("got", term, self.timeline)

    def renew_lease(self, term: Term) -> tuple[Any, ...]:
        if self.is_weakened:
            return ("weakened",)
        if self.is_changed:
            return ("changed",) if self.is_refused else ("lost",)
        row = self.lease[""]
        if row.term != term:
            return ("lost",)
        self._set(self.lease, "", row._replace(until=self.clock() + self.times.length_s))
        return ("renewed",)

    def release_lease(self, term: Term, successor: str | None) -> tuple[Any, ...]:
        row, now = self.lease[""], self.clock()
        if row.term == term or "release-of-any-term" in self.broken:
            until = now if successor is None else now + self.times.length_s
            self._set(self.lease, "", LeaseRow(successor or "", (term[0], 0), until, self.times.length_s))
        return ("released",)

    # The fence

    def end_sessions(self, servers: Iterable[str]) -> tuple[Any, ...]:
        for server in servers:
            self.ended[server] = self._true_time()
        return ("ended",)

    def fence_journal(self, term: Term, timeline: int) -> tuple[Any, ...]:
        if self.is_changed or (timeline != self.timeline and not self.keeps_all):
            return ("changed",)
        row = self.heads[STATE]
        if row.term != term and row.term[0] >= term[0] and "fence-by-anyone" not in self.broken:
            return ("foreign", row.term)
        self._set(self.heads, STATE, row._replace(term=term))
        return ("fenced", dict(self.heads))

    def fence_logs(self, term: Term, timeline: int) -> tuple[Any, ...]:
        if self.is_changed or (timeline != self.timeline and not self.keeps_all):
            return ("changed",)
        if self.heads[STATE].term != term and not self.broken & {"logs-before-journal", "fence-by-anyone"}:
            return ("foreign", self.heads[STATE].term)
        for log, row in self.heads.items():
            if log != STATE and (row.term[0] < term[0] or "fence-by-anyone" in self.broken):
                self._set(self.heads, log, row._replace(term=term))
        return ("fenced", dict(self.heads))

    # Commits

    def commit(self, parts: tuple[Part, ...]) -> tuple[Any, ...]:
        """All parts, or none. A refusal has the heads, and whether the frame is there already, or was trimmed maybe."""
        if self.is_changed and "commit-on-any-timeline" not in self.broken:
            return ("changed",)
        if self.is_weakened and not ("names-unread" in self.broken and parts[0].frame.nonce in self.nonces):
            return ("weakened",)
        if not all(self._is_expected(part) for part in parts):
            frame = parts[0].frame
            there = frame.nonce in self.nonces
            is_trimmed = frame.last <= self.floors.get(frame.log, 0)
            heads = {part.frame.log: self.heads.get(part.frame.log, EMPTY) for part in parts}
            return ("refused", heads, there and not is_trimmed, is_trimmed)
        for part in parts:
            self._append(part.frame)
        return ("committed",)

    def _is_expected(self, part: Part) -> bool:
        log, expected, broken = part.frame.log, part.expected, self.broken
        row = self.heads.get(log)
        if row is None:
            return False
        if "lease-only" in broken or ("journal-not-compared" in broken and log == STATE):
            return part.frame.nonce not in self.nonces
        if "number-only" in broken:
            return row.number == expected.number
        if "no-term" in broken:
            return row[:2] == expected[:2]
        if "term-number" in broken:
            return row[:2] == expected[:2] and row.term[0] == expected.term[0]
        if "no-crc" in broken:
            return row.number == expected.number and row.term == expected.term
        return row == expected

    def _append(self, frame: Frame) -> None:
        log = frame.log
        if log == STATE:
            for entry in frame.entries:
                if entry[0] == "create" and entry[1] not in self.heads:
                    self._changes.append((self._true_time(), self.heads, entry[1], None))
                    self.heads[entry[1]] = Head(0, 0, frame.term)
                    self.frames[entry[1]] = []
                elif entry[0] == "trim":
                    self._set(self.floors, entry[1], max(entry[2], self.floors.get(entry[1], 0)))
        self._set(self.heads, log, Head(frame.last, frame.crc, frame.term))
        self.frames[log].append(frame)
        self._set(self.nonces, frame.nonce, frame)
        self._changes.append((self._true_time(), None, log, frame))
        self.committed(frame)

    # A synchronous standby

    def waits(self, statement: str, args: tuple[Any, ...]) -> bool:
        """Whether this statement gets no answer now, since what it writes waits for the standby."""
        if not (self.standby_is_away and self.waits_for_standby) or statement == "read":
            return False
        if statement != "commit":
            return True
        [parts] = args
        if all(self._is_expected(part) for part in parts):
            if self.waiting is None and not self._unconfirmed:
                self.waiting = parts
            return True
        # Who finds its own frame writes something, so that this waits: WAL order covers what was before.
        return parts[0].frame.nonce in self.nonces and "found-without-waiting" not in self.broken

    def crash(self) -> None:
        """What waits becomes visible at the restart, and nobody knows whether the standby has it."""
        if self.waiting is not None and all(self._is_expected(part) for part in self.waiting):
            self._confirmed = len(self._changes)
            for part in self.waiting:
                self._append(part.frame)
                self._unconfirmed[part.frame.log] = part.frame
        self.waiting = None
        self.restart()

    def weaken(self) -> None:
        """Somebody takes the standby's name out: who waits for it is answered, and it gets no more."""
        self._left_at = self._confirmed if self._unconfirmed else len(self._changes)
        self.waits_for_standby, self.was_weakened = False, True
        self.standby_returns()

    def name_again(self) -> None:
        """Commits wait for the standby, which has everything by then."""
        self.waits_for_standby = True

    def ask_after_promotions(self) -> None:
        """The owner declares nothing of the standby any more: no term goes on from before that."""
        self.is_declared = False
        lease = self.lease[""]  # its holder may still count on it
        number = lease.term[0] + 1
        self._set(self.lease, "", lease._replace(holder="", term=(number, 0)))
        for log, row in self.heads.items():
            self._set(self.heads, log, row._replace(term=(number, 0)))

    def standby_returns(self) -> tuple[Part, ...] | None:
        """It has everything now. What waited is done, and was not answered."""
        self.standby_is_away = False
        self._unconfirmed = {}
        parts, self.waiting = self.waiting, None
        if parts is not None and all(self._is_expected(part) for part in parts):
            for part in parts:
                self._append(part.frame)
        return parts

    # Reading

    def read(self, incarnation: int, ends: Mapping[str, tuple[int, int]]) -> tuple[Any, ...]:
        """Where all logs end, and all frames after those ends: what the standbys have that commits wait for."""
        if self.is_weakened and "follows-weakened" not in self.broken:
            return ("weakened", None)
        frames: list[Frame] = []
        forked: list[str] = []
        if incarnation != self.incarnation:
            ends = {}
        for log, chain in self.frames.items():
            number, crc = ends.get(log, (0, 0))
            at = len(chain)
            while at and chain[at - 1].last > number:
                at -= 1
            if number and at and (chain[at - 1].last, chain[at - 1].crc) != (number, crc):
                forked.append(log)
            frames.extend(chain[at:])
        heads = dict(self.heads)
        if self._unconfirmed and "serves-unconfirmed" not in self.broken:
            frames = [frame for frame in frames if self._unconfirmed.get(frame.log) is not frame]
            for log, frame in self._unconfirmed.items():
                heads[log] = Head(frame.first - 1, frame.prev, frame.term)
        found = Found(
            self.incarnation, self.is_refused, self.is_believed, self.timeline, heads, frames, dict(ends), forked
        )
        return ("found", found)

    def mark(self) -> tuple[Any, ...]:
        """Somebody knows that this home went back."""
        if "no-mark" not in self.broken:
            self._set(self.accepted, "", _MARKED)
        return ("changed",)

    # What befalls it

    def restart(self) -> None:
        """A crash: every session ends."""
        self.life += 1

    def promote(self, lag_s: float) -> None:
        """Its standby goes on, without what is newer than that."""
        self.restart()
        self.timeline += 1
        if not self.keeps_all:
            self.go_back(lag_s)
            return
        self.accepted[""] = self.timeline
        self.waiting = None
        if self.is_declared and not self.waits_for_standby:
            self.waits_for_standby = True
            self._undo(self._left_at)
        elif self._unconfirmed:
            self._undo(self._confirmed)
        self.standby_returns()

    def go_back(self, lag_s: float) -> None:
        """Forget the changes of that time."""
        kept = len(self._changes)
        while kept and self._changes[kept - 1][0] > self._true_time() - lag_s:
            kept -= 1
        self._undo(kept)

    def _undo(self, kept: int) -> None:
        if len(self._changes) > kept:
            self.set_back_at = self._true_time()
        while len(self._changes) > kept:
            _, table, key, old = self._changes.pop()
            if table is None:
                if self.frames[key] and self.frames[key][-1] is old:
                    self.frames[key].pop()
                self.forgotten.append(old)
                self.has_forgotten = True
            elif old is None:
                del table[key]
                if table is self.heads:
                    del self.frames[key]
            else:
                table[key] = old

    def accept_loss(self, nonce: int) -> None:
        """A person accepts what is there: a new incarnation, above every number that was given, a lease later."""
        self.incarnation += 1
        self.accepted[""] = self.timeline
        known = [row.seen[0] for row in self.members.values()] + [row.term[0] for row in self.heads.values()]
        number = max([self.lease[""].term[0], *known]) + 1000
        for name, member in list(self.members.items()):
            if member.is_ahead or member.timeline != self.timeline:
                del self.members[name]
        # Who had the lease in the other history may still count on it.
        wait = 0.0 if "accepted-at-once" in self.broken else self.times.length_s
        self.lease[""] = LeaseRow("", (number, nonce), self.clock() + wait, self.times.length_s)
        for log, row in list(self.heads.items()):
            first, last = row.number + 1, row.number + 1000
            jump = Frame(log, first, last, row.crc, nonce + first, nonce, (number, nonce), 0.0, ())
            self.frames[log].append(jump)
            self.heads[log] = Head(last, jump.crc, (number, nonce))
        self._changes.clear()
