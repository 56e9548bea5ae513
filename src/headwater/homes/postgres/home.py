"""The home in PostgreSQL: a row for the head of each log, a row for each frame, one statement for each commit.

The statement updates the head if it has the number, checksum and term that the writer expects, and then inserts the
frames. The head row serializes concurrent writers. If an answer is lost, the same statement is executed again until it
is known whose frames are in the home (`statements`). A query would not be enough, because the lost statement may still
be executed later.
"""

from __future__ import annotations

import functools
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from ...core.errors import NotPrimary, OutcomeUnknown, StorageUnavailable
from ...storage.frames.encoding import EncodedFrame
from ...storage.frames.frame_log import Head, HeadMoved, Term, nobody
from ...storage.home.port import (
    JOURNAL_KEY,
    NO_HISTORY,
    BegunBatch,
    History,
    Home,
    HomeChanged,
    KeptHeads,
    StandbysChanged,
    standbys_changed,
)
from . import lease, marked_term, members, servers, staged
from .commit import COMMIT, COMMIT_WAITED, WAITED, commit_values
from .connections import HomeConnection, Prepared
from .extents import NOTHING, Extent, counted
from .growth import Growth, growth
from .hosts import WritableHosts
from .lease import IDENTIFIER, TIMELINE, WAITED_FOR, Granted, LeaseStanding, Renewal
from .members import Member
from .schema import Finding, findings, identity_of, pooling, tried
from .servers import ServerReport
from .standbys import missing_standbys
from .statements import OVERDUE_S, SILENCE_S, HomeUnavailable, Statements

if TYPE_CHECKING:
    from .schema import Connection

PAGE_BYTES = 16 * 1024 * 1024
PAGE_FRAMES = 4096
_MAY_BE_LACKED = "commits do not wait for the declared standbys, so no new events are fetched; an operator must check"
FORGET_FRAMES = 1000
"""The most frames that one statement deletes."""
_HEAD = "SELECT head, crc, term, nonce FROM headwater.log WHERE key = %s"
_HEADS = f"""
SELECT {WAITED_FOR}, CASE WHEN pg_is_in_recovery() THEN 0 ELSE {TIMELINE} END, {IDENTIFIER},
    key, head, crc, term, nonce
FROM headwater.log
"""
_ONE_FRAME = """
SELECT content FROM headwater.frame JOIN headwater.log ON log = id WHERE key = %b AND last = %b
"""
_PAGE = """
SELECT last, content FROM (
    SELECT last, content, sum(octet_length(content)) OVER (ORDER BY last) - octet_length(content) AS before
    FROM (
        SELECT last, content FROM headwater.frame
        WHERE log = (SELECT id FROM headwater.log WHERE key = %b) AND last > %b AND last <= %b ORDER BY last LIMIT %b
    ) AS following
) AS weighed WHERE before < %b ORDER BY last
"""
_HOLD = f"UPDATE headwater.log SET head = head WHERE key = '{JOURNAL_KEY}' AND term = %s AND nonce = %s"
_CREATE = """
INSERT INTO headwater.log (key, head, crc, term, nonce) SELECT %(key)s, %(head)s, 0, %(number)s, %(nonce)s
WHERE NOT EXISTS (SELECT FROM headwater.log WHERE key = %(key)s)
"""
_SKIP = "UPDATE headwater.log SET head = greatest(head, %s) WHERE key = %s AND term = %s AND nonce = %s"
_FORGET = """
DELETE FROM headwater.frame WHERE (log, last) IN (
    SELECT frame.log, frame.last FROM headwater.frame JOIN headwater.log ON frame.log = log.id
    WHERE key = %s AND term = %s AND nonce = %s AND last < %s ORDER BY last LIMIT %s
)
"""
_DELETE = "DELETE FROM headwater.log WHERE key = %s AND term = %s AND nonce = %s"
_KEPT = "SELECT min(last) FROM headwater.frame JOIN headwater.log ON log = id WHERE key = %s"


@functools.cache
def _this_process() -> int:
    """Distinguishes the connections of this process from those of others, which a new primary terminates."""
    return secrets.randbits(62)


os.register_at_fork(after_in_child=_this_process.cache_clear)


class PostgresHome(Home):
    """A `storage.home.port.Home` in a PostgreSQL database, in which this server is the primary for one term."""

    def __init__(
        self,
        url: str,
        *,
        overdue_s: float = OVERDUE_S,
        silence_s: float = SILENCE_S,
        connect_s_max: int | None = None,
        lease_ms: int | None = None,
    ) -> None:
        """Connect and read the identity of the home. Raises StorageUnavailable if it cannot be reached or has none.

        `lease_ms`: the length of this server's lease, which `lease_lengths` shows to others.
        """
        self._statements = Statements(
            url,
            f"headwater replica {_this_process():x}{'' if lease_ms is None else f' {lease_ms}'}",
            lambda: self.unavailable is not None,
            overdue_s=overdue_s,
            silence_s=silence_s,
            connect_s_max=connect_s_max,
        )
        self._name = self._statements.name
        self._term, self._timeline = Term(0, 0), 0
        self._waited_for: str | None = None
        """The standbys that each commit of the term must wait for, see `Granted`."""
        self._kept_heads: dict[str, Head] = {}
        """The heads that were last read and confirmed."""
        self._places: dict[str, bytes] = {}
        """The location of each log's head row since the last commit to it."""
        self.may_act: Callable[[], bool] = lambda: True
        self.has_lapsed: Callable[[], bool] = lambda: False
        """See `Home`. The owner of the lease sets this and `may_act`."""
        self._was_synchronous = False
        """Whether the last renewal waited for a standby. The setting alone does not show this: for a moment after it
        changes, commits do not wait yet. A renewal that waited proves that earlier commits reached the standby.
        """
        try:
            with self._statements.asking() as connection:
                self._identity = identity_of(connection.psycopg)
        except BaseException:
            self._statements.close()
            raise
        self._statements.watch()

    @property
    def url(self) -> str:
        """The address of the home."""
        return self._statements.connections.url

    @property
    def incarnation(self) -> str:
        return self._identity.incarnation

    @property
    def seed(self) -> int:
        return self._identity.seed

    @property
    def term(self) -> Term:
        return self._term

    @property
    def unavailable(self) -> StorageUnavailable | None:
        if not self.may_act():
            return StorageUnavailable(reason="this server's lease was not renewed in time; try again")
        return self.away

    @property
    def patience_s(self) -> float:
        return self._statements.overdue_s

    @property
    def away(self) -> StorageUnavailable | None:
        return self._statements.away

    def findings(self) -> list[Finding]:
        """The findings about the database: see `schema.findings`. Raises StorageUnavailable."""
        with self._statements.asking() as connection, self._statements.asking() as another:
            return [*findings(connection.psycopg), *pooling(connection.psycopg, another.psycopg)]

    def writable_hosts(self) -> tuple[list[str], list[str]]:
        """The hosts that accept writes and the hosts that do not answer, if the address names several.

        Two hosts that accept writes are two databases.
        """
        with closing(WritableHosts(self.url)) as hosts:
            return hosts.look(), hosts.silent

    def check(self, clock_off_s_max: float) -> list[Finding]:
        """The same, and the findings of trial writes: see `schema.tried`. Raises StorageUnavailable."""
        found = self.findings()
        with self._statements.asking() as connection:
            found += tried(connection.psycopg, clock_off_s_max)
            if (why := missing_standbys(connection.psycopg)) is not None:
                found.append(Finding(False, why))
        return found

    def growth(self) -> Growth:
        """The sizes of its tables. Raises StorageUnavailable."""
        with self._statements.asking() as connection:
            return growth(connection.psycopg)

    # The lease

    def begin_term(self) -> Term:
        """Take the lease for this process even if another server holds it, as commands and tests do.

        Raises StorageUnavailable; NotPrimary if another server was faster.
        """
        granted = self.try_lease("", {}, secrets.randbits(62), 0.0, is_forced=True)
        if granted is None:
            raise StorageUnavailable(f"{self._name} grants no lease: {self.standing().obstacle}")
        self.fence(granted)
        return granted.term

    def fence(self, granted: Granted) -> None:
        """Let only this server append from now on, in that term.

        Raises StorageUnavailable; NotPrimary if the lease was granted again meanwhile.
        """
        self.end_sessions()
        if not (self.fence_journal(granted) and self.fence_logs(granted)):
            raise NotPrimary(JOURNAL_KEY)
        self.adopt(granted)

    def try_lease(
        self, server: str, addresses: Mapping[str, str], nonce: int, length_s: float, *,
        member: str | None = None, is_forced: bool = False,
    ) -> Granted | None:  # fmt: skip
        """Take the lease for `length_s` from now, if it is free, with the next number; None if it is not granted.

        `member`: the ID of the server's copy, which must be a member; None for a command or a test. The same nonce gets
        the same lease again. Times are by the home's clock. The lease selects the primary; the term prevents other
        servers from appending. Raises StorageUnavailable: the lease may have been granted.
        """
        with self._statements.asking() as connection:
            granted = lease.try_lease(connection.psycopg, server, addresses, nonce, length_s, member=member,
                                      is_forced=is_forced)  # fmt: skip
            self._statements.confirm_if_needed(connection)
        return granted

    def renew_lease(self, term: Term, length_s: float) -> Renewal:
        """Extend the lease to `length_s` from now. Raises StorageUnavailable."""
        with self._statements.asking() as connection:
            waits, found = lease.renew_lease(connection.psycopg, term, length_s, self._was_synchronous)
        self._was_synchronous = bool(waits)
        return Renewal(waits is not None, self._known(found))

    def release_lease(self, term: Term) -> None:
        """Release the lease, unless it is of another term. Raises StorageUnavailable."""
        with self._statements.asking() as connection:
            lease.release_lease(connection.psycopg, term)

    def standing(self) -> LeaseStanding:
        """The state of the lease. Raises StorageUnavailable."""
        with self._statements.asking() as connection:
            found = lease.standing(connection.psycopg)
        return self._known(found)

    def _known(self, found: LeaseStanding | None) -> LeaseStanding:
        if found is None:
            raise StorageUnavailable(f"{self._name}: the lease table is empty; restore it from a backup")
        return found

    def mark(self, what: str) -> None:
        """Mark the home as lacking events: it grants no lease until `accept`. Raises StorageUnavailable."""
        with self._statements.asking() as connection:
            lease.mark(connection.psycopg, what)
            self._statements.confirm_if_needed(connection)

    def accept(self, pause_s: float) -> list[str]:
        """Accept the events that the home lost; no server gets the lease for `pause_s`.

        The next primary gives all logs new incarnations. Returns the names of the removed members: their copies were
        not compared, or are ahead. Raises StorageUnavailable.
        """
        with self._statements.asking() as connection:
            lease.accept(connection.psycopg, pause_s)
            forgotten = members.forget_others(connection.psycopg) if lease.has_members(connection.psycopg) else []
            self._statements.confirm(connection)
        return forgotten

    def begin_marked(self, server: str, mark: str, seen: int, losses: int) -> Granted | None:
        """Mark the home and begin a term above all known terms and `seen`; None if a server has the lease.

        `losses`: the number of accepted losses in the state. Fence the term next. Raises StorageUnavailable if the home
        cannot be reached or is of version 1.
        """
        with self._statements.asking() as connection:
            granted = marked_term.begin(connection.psycopg, server, mark, secrets.randbits(62), seen, losses)
            self._statements.confirm_if_needed(connection)
        return granted

    def end_marked(self, mark: str, *, forgets_members: bool = False) -> None:
        """End that term. `mark` replaces the mark of the home; an empty one removes it.

        Raises StorageUnavailable, NotPrimary.
        """
        with self._statements.asking() as connection:
            is_ended = marked_term.end(connection.psycopg, self._term, mark, forgets_members=forgets_members)
            self._statements.confirm_if_needed(connection)
        if not is_ended:
            raise NotPrimary(JOURNAL_KEY)

    def knows_cluster(self) -> bool:
        with self._statements.asking() as connection:
            return lease.knows_cluster(connection.psycopg)

    def know_cluster(self) -> None:
        with self._statements.asking() as connection:
            lease.know_cluster(connection.psycopg)
            self._statements.confirm_if_needed(connection)

    def identifier(self) -> str:
        with self._statements.asking() as connection:
            return lease.identifier(connection.psycopg)

    def losses(self) -> int:
        with self._statements.asking() as connection:
            return lease.losses(connection.psycopg)

    # The servers

    def tell_of(self, report: ServerReport) -> None:
        """Store the report of this process's server. Raises StorageUnavailable."""
        with self._statements.asking() as connection:
            servers.tell(connection.psycopg, _this_process(), report)

    def enter_member(self, member: Member) -> None:
        """Store the evidence of this server's copy. A home of version 1 has no members.

        Raises StorageUnavailable.
        """
        with self._statements.asking() as connection:
            if lease.has_members(connection.psycopg) and members.enter(connection.psycopg, member):
                self._statements.confirm_if_needed(connection)

    def members(self) -> list[Member]:
        """The evidence of all copies, ordered by name. Raises StorageUnavailable."""
        with self._statements.asking() as connection:
            return members.members(connection.psycopg) if lease.has_members(connection.psycopg) else []

    def forget_member(self, name: str) -> bool:
        """Remove a server that is permanently gone. Returns whether it was a member. Raises StorageUnavailable."""
        with self._statements.asking() as connection:
            is_known = lease.has_members(connection.psycopg) and members.forget(connection.psycopg, name)
            self._statements.confirm_if_needed(connection)
        return is_known

    def leave(self) -> None:
        """Remove the report of this process's server. Raises StorageUnavailable."""
        with self._statements.asking() as connection:
            servers.leave(connection.psycopg, _this_process())

    def others_connected(self) -> int:
        """The number of other servers and commands with a session. Raises StorageUnavailable."""
        with self._statements.asking() as connection:
            return len(servers.connected(connection.psycopg) - {_this_process()})

    def servers(self) -> list[ServerReport]:
        """The reports of all servers, ordered by name. Raises StorageUnavailable."""
        with self._statements.asking() as connection:
            return servers.servers(connection.psycopg)

    def lease_lengths(self) -> list[int]:
        """The lengths of leases, in ms, for which connected servers are set, ascending. Raises StorageUnavailable."""
        with self._statements.asking() as connection:
            return servers.lease_lengths(connection.psycopg)

    def missing_standbys(self) -> str | None:
        """See `standbys.missing_standbys`. Raises StorageUnavailable."""
        with self._statements.asking() as connection:
            return missing_standbys(connection.psycopg)

    @property
    def waits_for(self) -> str | None:
        """The same when a statement was last late; None once all standbys are connected."""
        return self._statements.missing_standbys

    # The term

    def end_sessions(self) -> None:
        """Terminate the sessions of other primaries, if this role has the right to. Raises StorageUnavailable."""
        with self._statements.asking() as connection:
            lease.end_sessions(connection.psycopg)

    def fence_journal(self, granted: Granted) -> bool:
        """Write that term into the journal's head; False if there is a newer one. Raises StorageUnavailable."""
        return self._fence(lease.fence_journal, granted)

    def fence_logs(self, granted: Granted) -> bool:
        """Write that term into all other heads; False if the journal has a newer one. Raises StorageUnavailable.

        The journal is fenced first. Creating a log needs the journal, so no log is created between the two fences.
        """
        return self._fence(lease.fence_logs, granted)

    def adopt(self, granted: Granted) -> None:
        """Append in that term from now on. Its fences must be set."""
        self._term, self._timeline, self._waited_for = granted
        self._statements.gives_up = False
        self._statements.connections.rename(f"headwater primary {_this_process():x}")

    def give_up(self) -> None:
        """End the term: waiting callers give up after a moment. `adopt` lets callers wait again."""
        self._statements.gives_up = True

    def _fence(self, fence: Callable[[Connection, Granted], bool], granted: Granted) -> bool:
        with self._statements.asking() as connection:
            has_term = fence(connection.psycopg, granted)
            self._statements.confirm_if_needed(connection)
        return has_term

    # Frames

    def head(self, key: str) -> Head | None:
        with self._statements.asking() as connection:
            return _head(connection, key)

    def heads(self) -> dict[str, Head]:
        """The heads of all logs by key. Raises StorageUnavailable."""
        with self._statements.asking() as connection:
            return {key: _as_head(row) for _, _, _, key, *row in connection.psycopg.execute(_HEADS)}

    def kept_heads(self) -> KeptHeads:
        """See `Home`. If commits wait for a standby and heads changed, one more commit confirms all earlier ones.

        A commit can be visible although its wait for a standby was cut short, by an administrator or a crash of the
        database. So new heads are not returned while commits do not wait as the owner declared: a standby may lack
        these events when it is promoted.
        """
        with self._statements.asking() as connection:
            rows = connection.psycopg.execute(_HEADS).fetchall()
            heads = {key: _as_head(row) for _, _, _, key, *row in rows}
            waited_for, history = (rows[0][0], History(*rows[0][1:3])) if rows else ("", NO_HISTORY)
            is_news = heads != self._kept_heads
            if is_news and waited_for:
                self._statements.confirm(connection)
            is_standby = history.timeline == 0
            doubt = self._doubt(connection, waited_for) if is_news and not is_standby else None
        if doubt is not None:
            raise HomeUnavailable(f"{self._name}: {doubt}", reason=_MAY_BE_LACKED)
        self._kept_heads = heads
        return KeptHeads(history, heads)

    def _doubt(self, connection: HomeConnection, waited_for: str) -> str | None:
        """Why a standby may lack these heads; None if all have them. `waited_for`: the standbys when they were read."""
        standing = self._known(lease.standing(connection.psycopg))  # after the commit that waited, as in `commit`
        if standing.is_weakened:
            return standing.obstacle
        now = standing.waited_for
        return None if now is None or now == waited_for else standbys_changed(waited_for, now)

    def create(self, key: str, head: int) -> None:
        def made(connection: HomeConnection, is_unknown: bool) -> bool:
            with connection.psycopg.transaction():
                if not connection.psycopg.execute(_HOLD, self._term).rowcount:
                    raise NotPrimary(key)
                # a separate statement, so that it sees rows of the previous holder of the lock
                connection.psycopg.execute(_CREATE, {"key": key, "head": head, **self._term._asdict()})
            return True

        self._statements.until_known(key, made, nobody, is_harmless=True)

    def commit(self, key: str, frames: Sequence[EncodedFrame], expected: Head, on_overdue: Callable[[], None]) -> None:
        contents = [b"".join(frame.buffers) for frame in frames]
        lasts = [frame.last for frame in frames]
        head = (lasts[-1], frames[-1].crc)
        waited_for = self._waited_for
        values = commit_values(key, expected, self._timeline, head, lasts, contents)

        def is_there(connection: HomeConnection) -> bool:
            row = connection.psycopg.execute(_ONE_FRAME, (key, lasts[-1]), binary=True).fetchone()
            return row is not None and bytes(row[0]) == contents[-1]

        def moved(connection: HomeConnection, statement: Prepared, given: list[bytes]) -> bytes | None:
            if waited_for is None:
                return connection.execute(statement, given)
            place, now = connection.execute_and_look(statement, given, WAITED)
            if now != waited_for:
                raise StandbysChanged(key, waited_for, now)
            return place

        def executed(connection: HomeConnection) -> bool:
            statement, given = (
                (COMMIT, values) if waited_for is None else (COMMIT_WAITED, [*values, waited_for.encode()])
            )
            place = self._places.get(key)
            moved_to = None if place is None else moved(connection, statement.by_place, [*given, place])
            if moved_to is None:  # another statement moved the row
                moved_to = moved(connection, statement.by_key, given)
            if moved_to is not None:
                self._places[key] = moved_to
            return moved_to is not None

        def committed(connection: HomeConnection, is_unknown: bool) -> bool:
            if is_unknown and is_there(connection):
                return False  # the answer of an earlier attempt was lost; it may still wait for a standby
            if executed(connection):
                return True
            found = _head(connection, key)
            if is_there(connection):
                return False  # it is there by now
            if found == expected:
                raise HomeChanged(
                    f"{self._name} has another history than at the start of the term: a standby was promoted"
                )
            if (
                is_unknown
                and (found is None or found.number >= lasts[-1])
                and not self._is_kept(connection, key, lasts[-1])
            ):
                raise OutcomeUnknown(key)  # it may have been there and been trimmed since
            raise HeadMoved(found or Head(0, 0, Term(0, 0)))

        def waited(connection: HomeConnection, is_unknown: bool) -> bool:
            is_durable = committed(connection, is_unknown)
            if waited_for is None or (is_durable and not connection.is_unconfirmed):
                return is_durable
            self._statements.confirm(connection)
            if (now := lease.waited_for(connection.psycopg)) != waited_for:
                raise StandbysChanged(key, waited_for, now)
            return True

        self._statements.until_known(key, waited, on_overdue, sum(map(len, contents)))

    def frames(self, key: str, after: int, upto: int) -> Iterator[bytes]:
        while after < upto:
            with self._statements.asking() as connection:
                given = (key, after, upto, PAGE_FRAMES, PAGE_BYTES)
                page = connection.psycopg.execute(_PAGE, given, binary=True).fetchall()
            if not page:
                return
            for last, content in page:
                yield content
                after = last

    def extent(self, key: str, after: int) -> Extent:
        """The size of a log in the home: all frames that end above `after`. Raises StorageUnavailable."""
        found = NOTHING
        while True:
            with self._statements.asking() as connection:
                some, last = counted(connection.psycopg, key, after)
            if not last:
                return found
            found, after = found.plus(*some), last

    def skip(self, key: str, number: int) -> None:
        with self._statements.asking() as connection:
            if not connection.psycopg.execute(_SKIP, (number, key, *self._term)).rowcount:
                raise NotPrimary(key)
            self._statements.confirm(connection)

    def forget(self, key: str, below: int) -> None:
        while True:
            with self._statements.asking() as connection:
                given = (key, *self._term, below, FORGET_FRAMES)
                if connection.psycopg.execute(_FORGET, given).rowcount < FORGET_FRAMES:
                    return

    def takes_postings(self) -> bool:
        with self._statements.asking() as connection:
            return lease.has_members(connection.psycopg)

    def delete(self, key: str) -> None:
        if key == JOURNAL_KEY:
            raise ValueError("expected the key of a log, got that of the journal")
        self.forget(key, 2**63 - 1)
        with self._statements.asking() as connection:
            staged.forget_log(connection.psycopg, key)
            connection.psycopg.execute(_DELETE, (key, *self._term))

    # Staged batches

    def keep_batch(self, key: str, name: str, manifest: bytes, parts: Mapping[str, Iterator[bytes]]) -> None:
        upload = secrets.randbits(62)
        for part, pieces in parts.items():
            for number, piece in enumerate(pieces):
                with self._statements.asking() as connection:
                    staged.put(connection.psycopg, upload, part, number, piece)
        with self._statements.asking() as connection:
            is_begun = staged.begin(connection.psycopg, self._term, key, name, upload, manifest)
            self._statements.confirm_if_needed(connection)
        if not is_begun:
            if (head := self.head(JOURNAL_KEY)) is None or head.term != self._term:
                raise NotPrimary(key)
            raise HomeUnavailable(
                f"{self._name}: a commit of {name} has already begun",
                reason="another commit of this batch has already begun; try again",
            )

    def batch(self, key: str, name: str) -> BegunBatch | None:
        with self._statements.asking() as connection:
            found = staged.begun(connection.psycopg, key, name)
        if found is None:
            return None
        upload, manifest = found

        def parts() -> Iterator[tuple[str, Iterator[bytes]]]:
            with self._statements.asking() as connection:
                names = staged.parts(connection.psycopg, upload)
            for part in names:
                yield part, self._pieces(upload, part)

        return BegunBatch(manifest, parts)

    def _pieces(self, upload: int, part: str) -> Iterator[bytes]:
        number = 0
        while True:
            with self._statements.asking() as connection:
                piece = staged.piece(connection.psycopg, upload, part, number)
            if piece is None:
                return
            yield piece
            number += 1

    def batches(self, key: str, prefix: str) -> list[str]:
        with self._statements.asking() as connection:
            return staged.names(connection.psycopg, key, prefix)

    def forget_batch(self, key: str, name: str) -> None:
        with self._statements.asking() as connection:
            staged.forget(connection.psycopg, self._term, key, name)

    def close(self) -> None:
        self._statements.close()

    def _is_kept(self, connection: HomeConnection, key: str, last: int) -> bool:
        """Whether the frame that ends at `last` cannot have been trimmed: if it is missing, it was never committed."""
        row = connection.psycopg.execute(_KEPT, (key,)).fetchone()
        return row is not None and row[0] is not None and bool(row[0] <= last)


def _head(connection: HomeConnection, key: str) -> Head | None:
    row = connection.psycopg.execute(_HEAD, (key,)).fetchone()
    return None if row is None else _as_head(row)


def _as_head(row: Sequence[Any]) -> Head:
    number, crc, term, nonce = row
    return Head(number, crc, Term(term, nonce))
