"""The home in PostgreSQL: a row for the head of each log, a row for each frame, one statement for each commit.

The statement sets the head if it is what the writer expects - number, checksum, and term - and inserts the frames if it
did; the row of the head orders all who try. Where an answer is lost, the same statement is executed again, until it is
known whose frames are there: a look alone would not do, for a statement that was sent can still be executed later.
"""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..core.errors import NotPrimary, OutcomeUnknown, StorageUnavailable
from ..core.threads import Threads
from ..storage.frame import EncodedFrame
from ..storage.framelog import Head, HeadMoved, Term, nobody
from ..storage.home import JOURNAL_KEY, BegunBatch, HomeChanged
from . import postgres_lease, postgres_servers, postgres_staged
from .postgres_commit import COMMIT, commit_values
from .postgres_connections import CONNECT_S, Connections, HomeConnection, load_driver
from .postgres_lease import SYNCHRONOUS, Granted, LeaseStanding
from .postgres_schema import Finding, findings, identity_of
from .postgres_servers import ServerReport

if TYPE_CHECKING:
    from .postgres_schema import Connection

logger = logging.getLogger("headwater.homes")

OVERDUE_S = 5.0
"""Who waits for a commit is told after that time that its outcome is not known; nothing more is sent meanwhile."""
SILENCE_S = 10.0
"""A connection on which a statement had no answer for so long is severed, and another one tried."""
BYTES_PER_S_MIN = 500_000
"""What is large may take longer."""
GIVING_UP_S = 2.0
"""Who stops waits no longer than that for a silent connection."""
BACKOFF_S = (0.02, 1.0)
PAGE_BYTES = 16 * 1024 * 1024
PAGE_FRAMES = 4096
FORGET_FRAMES = 1000
"""So many are deleted by one statement."""
WATCH_S = 0.25

_HEAD = "SELECT head, crc, term, nonce FROM headwater.log WHERE key = %s"
_HEADS = f"SELECT {SYNCHRONOUS}, key, head, crc, term, nonce FROM headwater.log"
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
_CREATE = f"""
WITH mine AS (
    UPDATE headwater.log SET head = head WHERE key = '{JOURNAL_KEY}' AND term = %s AND nonce = %s
    RETURNING term, nonce
)
INSERT INTO headwater.log (key, head, crc, term, nonce) SELECT %s, %s, 0, term, nonce FROM mine
ON CONFLICT (key) DO NOTHING
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
_CONFIRM = f"UPDATE headwater.log SET head = head WHERE key = '{JOURNAL_KEY}'"
_UNKNOWN = ("08", "57", "40003")
"""Codes, or classes of them, of errors that do not say whether the statement was executed: the connection ended, or the
server; a wait for a standby may have been cut short."""
_PASSING = ("25006", "40", "53", "55P03")
"""Of errors that say it was not, and that pass: a server that became a standby, conflicts, want of resources, a lock
that somebody else held for too long."""


_INSUFFICIENT_PRIVILEGE = "42501"
_RIGHTS = "; have the owner give its role the rights that a server needs: headwater home init --role ROLE"
_PROCESS = secrets.randbits(62)
"""Tells the connections of this process from those of others, which a new primary ends."""


class HomeUnavailable(StorageUnavailable):
    """The database does not answer, or refuses: for as long as that lasts, nobody appends."""


class _Statement:
    """One that is under way: since when, on which connection, and who is to be told if it takes too long."""

    def __init__(self, on_overdue: Callable[[], None], size: int = 0) -> None:
        self.is_harmless = False
        """Nobody sees whether it was executed: it is given up when it takes too long, and is not repeated for ever."""
        self.extra_s = size / BYTES_PER_S_MIN
        """So much longer it may take than a small one."""
        self.began = time.monotonic()
        self.sent_at: float | None = None
        """When it was last sent, if it is under way now."""
        self.connection: HomeConnection | None = None
        self.on_overdue = on_overdue
        self.is_told = False
        """Who waits for it was told that it takes too long."""

    def sent(self, connection: HomeConnection) -> None:
        """It goes out on that connection now."""
        self.connection, self.sent_at = connection, time.monotonic()


class PostgresHome:
    """A `storage.home.Home` in a PostgreSQL database, in which this server is the primary for one term."""

    def __init__(
        self, url: str, *, overdue_s: float = OVERDUE_S, silence_s: float = SILENCE_S, connect_s: int = CONNECT_S
    ) -> None:
        """Connect, and look who the home is. Raises StorageUnavailable: it cannot be reached, or is none."""
        self._errors: Any = load_driver()
        self._name = described(url)
        """The home by its address, without what is secret in it."""
        self._connections = Connections(url, f"headwater replica {_PROCESS:x}", connect_s=connect_s)
        self._overdue_s, self._silence_s = overdue_s, silence_s
        self._term, self._timeline = Term(0, 0), 0
        self._kept_heads: dict[str, Head] = {}
        """As they were found, and confirmed, last."""
        self.may_act: Callable[[], bool] = lambda: True
        """See Home. Set by who knows of the lease."""
        self._changing = threading.Lock()
        self._under_way: set[_Statement] = set()
        self._failing_since: float | None = None
        self._failure = ""
        self._closing = threading.Event()
        self._was_synchronous = False
        """Whether a standby was waited for at the last renewal. The setting alone does not say so: for a moment after
        it changed, commits do not wait yet. What was committed before a renewal that waited is where it is."""
        self._gives_up = False
        """Whoever waits for an outcome that is not known is told so, instead of waiting on."""
        try:
            with self._asking() as connection:
                self._identity = identity_of(connection.psycopg)
        except BaseException:
            self._connections.close()
            raise
        threads = Threads()
        self._watching = [
            threads.start("home", self._watch, self._closing),
            threads.start("home-look", self._look_again, self._closing),
        ]

    @property
    def url(self) -> str:
        """Its address."""
        return self._connections.url

    @property
    def incarnation(self) -> str:
        """See Home."""
        return self._identity.incarnation

    @property
    def seed(self) -> int:
        """See Home."""
        return self._identity.seed

    @property
    def term(self) -> Term:
        """See Home."""
        return self._term

    @property
    def unavailable(self) -> StorageUnavailable | None:
        """See Home."""
        if not self.may_act():
            return StorageUnavailable(reason="this server's lease was not renewed in time; try again")
        return self.away

    @property
    def patience_s(self) -> float:
        """See Home."""
        return self._overdue_s

    @property
    def away(self) -> StorageUnavailable | None:
        """See Home."""
        since = self._failing_since
        if since is None or time.monotonic() - since < self._overdue_s:
            return None
        return self._away()

    def findings(self) -> list[Finding]:
        """What is to be said of the database: see `postgres_schema.findings`. Raises StorageUnavailable."""
        with self._asking() as connection:
            return findings(connection.psycopg)

    # The lease

    def begin_term(self) -> Term:
        """Take the home for this server, whoever has the lease, as one command or test does.

        Raises StorageUnavailable, NotPrimary: another server was quicker.
        """
        granted = self.try_lease("", {}, secrets.randbits(62), 0.0, is_forced=True)
        if granted is None:
            raise StorageUnavailable(
                f"{self._name} gives no lease: {self.standing().went_back or 'its history changed'}"
            )
        self.end_sessions()
        if not (self.fence_journal(granted) and self.fence_logs(granted)):
            raise NotPrimary(JOURNAL_KEY)
        self.adopt(granted)
        return granted.term

    def try_lease(
        self, server: str, addresses: Mapping[str, str], nonce: int, length_s: float, *, is_forced: bool = False
    ) -> Granted | None:
        """Take the lease for that long from now on, if it is free, with the next number; None: it is not given.

        The same nonce gets the same lease again. All by the clock of the home: it says who should be the primary; that
        nobody else appends is the term's. Raises StorageUnavailable: then it may have been given.
        """
        with self._asking() as connection:
            granted = postgres_lease.try_lease(
                connection.psycopg, server, addresses, nonce, length_s, is_forced=is_forced
            )
            self._confirm_if_needed(connection)
        return granted

    def renew_lease(self, term: Term, length_s: float) -> bool:
        """Have it for that long from now on; False: it is another's, or the home changed. Raises StorageUnavailable."""
        with self._asking() as connection:
            waits = postgres_lease.renew_lease(connection.psycopg, term, length_s, self._was_synchronous)
        self._was_synchronous = bool(waits)
        return waits is not None

    def release_lease(self, term: Term) -> None:
        """Whoever wants it may have it at once. One of another term stays. Raises StorageUnavailable."""
        with self._asking() as connection:
            postgres_lease.release_lease(connection.psycopg, term)

    def standing(self) -> LeaseStanding:
        """Who has it. Raises StorageUnavailable."""
        with self._asking() as connection:
            found = postgres_lease.standing(connection.psycopg)
        if found is None:
            raise StorageUnavailable(f"{self._name}: its table of the lease is empty; restore it from a backup")
        return found

    def mark(self, what: str) -> None:
        """The home lacks what it had: it gives no lease until `accept`. Raises StorageUnavailable."""
        with self._asking() as connection:
            postgres_lease.mark(connection.psycopg, what)
            self._confirm_if_needed(connection)

    def accept(self, pause_s: float) -> None:
        """Vouch for the history that it has now; nobody gets the lease for that long. Raises StorageUnavailable."""
        with self._asking() as connection:
            postgres_lease.accept(connection.psycopg, pause_s)
            self._confirm(connection)

    def losses(self) -> int:
        """See Home."""
        with self._asking() as connection:
            return postgres_lease.losses(connection.psycopg)

    # The servers

    def tell_of(self, report: ServerReport) -> None:
        """That is how the server of this process is now. Raises StorageUnavailable."""
        with self._asking() as connection:
            postgres_servers.tell(connection.psycopg, _PROCESS, report)

    def leave(self) -> None:
        """The server of this process ends. Raises StorageUnavailable."""
        with self._asking() as connection:
            postgres_servers.leave(connection.psycopg, _PROCESS)

    def servers(self) -> list[ServerReport]:
        """What servers told of themselves, by name. Raises StorageUnavailable."""
        with self._asking() as connection:
            return postgres_servers.servers(connection.psycopg)

    # The term

    def end_sessions(self) -> None:
        """End those of other primaries, as far as the database lets this role. Raises StorageUnavailable."""
        with self._asking() as connection:
            postgres_lease.end_sessions(connection.psycopg)

    def fence_journal(self, granted: Granted) -> bool:
        """Put that term into the head of the journal; False: there is a newer one. Raises StorageUnavailable."""
        return self._fence(postgres_lease.fence_journal, granted) > 0

    def fence_logs(self, granted: Granted) -> bool:
        """Put that term into all other heads; False: the journal has a newer one. Raises StorageUnavailable.

        The journal comes first: a log is made by who has that, so none is made in between.
        """
        self._fence(postgres_lease.fence_logs, granted)
        head = self.head(JOURNAL_KEY)
        return head is not None and head.term == granted.term

    def adopt(self, granted: Granted) -> None:
        """From now on append under that term, whose fences are set."""
        self._term, self._timeline = granted
        self._gives_up = False
        self._connections.rename(f"headwater primary {_PROCESS:x}")

    def give_up(self) -> None:
        """The term ends: who waits for an answer waits no longer than for a moment, until the next one is adopted."""
        self._gives_up = True

    def _fence(self, fence: Callable[[Connection, Granted], int], granted: Granted) -> int:
        with self._asking() as connection:
            found = fence(connection.psycopg, granted)
            self._confirm(connection)
        return found

    # Frames

    def head(self, key: str) -> Head | None:
        """See Home."""
        with self._asking() as connection:
            return _head(connection, key)

    def heads(self) -> dict[str, Head]:
        """Where all logs end, by their keys. Raises StorageUnavailable."""
        with self._asking() as connection:
            return {key: _as_head(row) for _, key, *row in connection.psycopg.execute(_HEADS)}

    def kept_heads(self) -> dict[str, Head]:
        """See Home. Where a standby is waited for, one more commit is, if there is news: it covers all before it.

        What can be read may be what such a wait was cut short for, by an administrator or a crash of the database.
        """
        with self._asking() as connection:
            rows = connection.psycopg.execute(_HEADS).fetchall()
            heads = {key: _as_head(row) for _, key, *row in rows}
            if any(row[0] for row in rows) and heads != self._kept_heads:
                self._confirm(connection)
            self._kept_heads = heads
        return heads

    def create(self, key: str, head: int) -> None:
        """See Home."""

        def made(connection: HomeConnection, is_unknown: bool) -> bool:
            if connection.psycopg.execute(_CREATE, (*self._term, key, head)).rowcount:
                return True
            found = _head(connection, key)
            if found is None or found.term != self._term:
                raise NotPrimary(key)
            return True

        self._until_known(key, made, nobody, is_harmless=True)

    def commit(self, key: str, frames: Sequence[EncodedFrame], expected: Head, on_overdue: Callable[[], None]) -> None:
        """See Home."""
        contents = [b"".join(frame.buffers) for frame in frames]
        lasts = [frame.last for frame in frames]
        head = (lasts[-1], frames[-1].crc)
        values = commit_values(key, expected, self._timeline, head, lasts, contents)

        def is_there(connection: HomeConnection) -> bool:
            row = connection.psycopg.execute(_ONE_FRAME, (key, lasts[-1]), binary=True).fetchone()
            return row is not None and bytes(row[0]) == contents[-1]

        def committed(connection: HomeConnection, is_unknown: bool) -> bool:
            if is_unknown and is_there(connection):
                return False  # the answer of an earlier try was lost; it may wait for a standby still
            if connection.execute(COMMIT, values):
                return True
            found = _head(connection, key)
            if is_there(connection):
                return False  # by now
            if found == expected:
                raise HomeChanged(
                    f"{self._name} writes another history than at the begin of the term: a standby was promoted"
                )
            if (
                is_unknown
                and (found is None or found.number >= lasts[-1])
                and not self._is_kept(connection, key, lasts[-1])
            ):
                raise OutcomeUnknown(key)  # it may have been there, and have been trimmed since
            raise HeadMoved(found or Head(0, 0, Term(0, 0)))

        self._until_known(key, committed, on_overdue, sum(map(len, contents)))

    def frames(self, key: str, after: int, upto: int) -> Iterator[bytes]:
        """See Home."""
        while after < upto:
            with self._asking() as connection:
                given = (key, after, upto, PAGE_FRAMES, PAGE_BYTES)
                page = connection.psycopg.execute(_PAGE, given, binary=True).fetchall()
            if not page:
                return
            for last, content in page:
                yield content
                after = last

    def skip(self, key: str, number: int) -> None:
        """See Home."""
        with self._asking() as connection:
            if not connection.psycopg.execute(_SKIP, (number, key, *self._term)).rowcount:
                raise NotPrimary(key)
            self._confirm(connection)

    def forget(self, key: str, below: int) -> None:
        """See Home."""
        while True:
            with self._asking() as connection:
                given = (key, *self._term, below, FORGET_FRAMES)
                if connection.psycopg.execute(_FORGET, given).rowcount < FORGET_FRAMES:
                    return

    def delete(self, key: str) -> None:
        """See Home."""
        if key == JOURNAL_KEY:
            raise ValueError("the journal is the home")
        self.forget(key, 2**63 - 1)
        with self._asking() as connection:
            postgres_staged.forget_log(connection.psycopg, key)
            connection.psycopg.execute(_DELETE, (key, *self._term))

    # Staged batches

    def keep_batch(self, key: str, name: str, manifest: bytes, parts: Mapping[str, Iterator[bytes]]) -> None:
        """See Home."""
        upload = secrets.randbits(62)
        for part, pieces in parts.items():
            for number, piece in enumerate(pieces):
                with self._asking() as connection:
                    postgres_staged.put(connection.psycopg, upload, part, number, piece)
        with self._asking() as connection:
            is_begun = postgres_staged.begin(connection.psycopg, self._term, key, name, upload, manifest)
            self._confirm_if_needed(connection)
        if not is_begun:
            if (head := self.head(JOURNAL_KEY)) is None or head.term != self._term:
                raise NotPrimary(key)
            raise HomeUnavailable(
                f"{self._name}: a commit of {name} has begun already",
                reason="another commit of that batch has begun; ask again",
            )

    def batch(self, key: str, name: str) -> BegunBatch | None:
        """See Home."""
        with self._asking() as connection:
            found = postgres_staged.begun(connection.psycopg, key, name)
        if found is None:
            return None
        upload, manifest = found

        def parts() -> Iterator[tuple[str, Iterator[bytes]]]:
            with self._asking() as connection:
                names = postgres_staged.parts(connection.psycopg, upload)
            for part in names:
                yield part, self._pieces(upload, part)

        return BegunBatch(manifest, parts)

    def _pieces(self, upload: int, part: str) -> Iterator[bytes]:
        number = 0
        while True:
            with self._asking() as connection:
                piece = postgres_staged.piece(connection.psycopg, upload, part, number)
            if piece is None:
                return
            yield piece
            number += 1

    def batches(self, key: str, prefix: str) -> list[str]:
        """See Home."""
        with self._asking() as connection:
            return postgres_staged.names(connection.psycopg, key, prefix)

    def forget_batch(self, key: str, name: str) -> None:
        """See Home."""
        with self._asking() as connection:
            postgres_staged.forget(connection.psycopg, self._term, key, name)

    def close(self) -> None:
        """See Home."""
        self._closing.set()
        self._connections.close()
        for each in self._watching:
            each.join()

    def _is_kept(self, connection: HomeConnection, key: str, last: int) -> bool:
        """Whether nothing was trimmed so far: then a frame that ends there and is missing was never committed."""
        row = connection.psycopg.execute(_KEPT, (key,)).fetchone()
        return row is not None and row[0] is not None and bool(row[0] <= last)

    def _until_known(
        self,
        key: str,
        attempt: Callable[[HomeConnection, bool], bool],
        on_overdue: Callable[[], None],
        size: int = 0,
        *,
        is_harmless: bool = False,
    ) -> None:
        """Try until the outcome is known. `attempt` answers whether the server's word suffices that it is durable.

        It is told whether an earlier try may have had an effect. Raises what `attempt` does; StorageUnavailable:
        nothing came of it; OutcomeUnknown: `give_up` or `close` was called before it was known.
        """
        statement = _Statement(on_overdue, size)
        statement.is_harmless = is_harmless
        is_unknown = False
        """Whether a try may have had, or may still have, an effect that nobody was told of."""
        pause_s = BACKOFF_S[0]
        if self._gives_up and self._failing_since is not None:
            raise self._away()
        with self._changing:
            self._under_way.add(statement)
        try:
            while True:
                try:
                    with self._connections.one(statement.sent) as connection:
                        try:
                            if not attempt(connection, is_unknown):
                                self._confirm(connection)
                            self._confirm_if_needed(connection)
                        except self._errors.Error as error:
                            is_unknown = is_unknown or (_says_nothing(error) and not is_harmless)
                            raise
                    self._answered(statement)
                    return
                except self._errors.Error as error:
                    statement.sent_at = None
                    if statement.connection is None or not statement.connection.is_severed:
                        self._failed(error)
                    is_passing = _says_nothing(error) or _passes(error)
                    if not is_unknown and (not is_passing or self._has_failed_for_long(statement.began)):
                        raise self._away() from None
                    if self._closing.is_set() or self._gives_up:
                        raise (OutcomeUnknown(key) if is_unknown else self._away()) from None
                self._closing.wait(pause_s * random.uniform(0.5, 1))
                pause_s = min(pause_s * 2, BACKOFF_S[1])
        finally:
            with self._changing:
                self._under_way.discard(statement)

    @contextmanager
    def _asking(self) -> Iterator[HomeConnection]:
        """A connection for what can be asked again at will. Raises StorageUnavailable."""
        statement = _Statement(nobody)
        try:
            with self._changing:
                self._under_way.add(statement)
            with self._connections.one(statement.sent) as connection:
                yield connection
        except self._errors.Error as error:
            self._failed(error)
            raise self._away() from None
        else:
            self._answered(statement)
        finally:
            with self._changing:
                self._under_way.discard(statement)

    def _confirm(self, connection: HomeConnection) -> None:
        """All that can be read now is durable when this returns: who waits for a standby waits for all before it."""
        while True:
            connection.is_unconfirmed = False
            connection.psycopg.execute(_CONFIRM)
            if not connection.is_unconfirmed:
                return

    def _confirm_if_needed(self, connection: HomeConnection) -> None:
        if connection.is_unconfirmed:
            self._confirm(connection)

    def _answered(self, statement: _Statement) -> None:
        """It was: while another statement has no answer for too long, that is not worth a word."""
        with self._changing:
            if any(each.is_told and each is not statement for each in self._under_way):
                return
            since, self._failing_since = self._failing_since, None
        if since is not None:
            logger.info("%s answers again, after %.1f s", self._name, time.monotonic() - since)

    def _failed(self, error: Exception, since: float | None = None) -> None:
        with self._changing:
            self._failure = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            if getattr(error, "sqlstate", None) == _INSUFFICIENT_PRIVILEGE:
                self._failure += _RIGHTS
            is_news = self._failing_since is None
            self._failing_since = self._failing_since or since or time.monotonic()
        if self._closing.is_set():
            return
        if is_news:
            logger.warning("%s: %s; it is tried again", self._name, self._failure)
        self._connections.drop_idle()

    def _has_failed_for_long(self, since: float) -> bool:
        return self.unavailable is not None or time.monotonic() - since > self._overdue_s

    def _away(self) -> HomeUnavailable:
        return HomeUnavailable(
            f"{self._name}: {self._failure or 'it is closed'}",
            reason="where events are committed to cannot be reached; try again later",
        )

    def _watch(self) -> None:
        """Tell who waits too long, and sever silent connections."""
        while not self._closing.wait(WATCH_S):
            now = time.monotonic()
            with self._changing:
                under_way = list(self._under_way)
            for statement in under_way:
                if now - statement.began > self._overdue_s + statement.extra_s:
                    self._failed(TimeoutError(f"no answer for {self._overdue_s:g} s"), statement.began)
                    statement.is_told = True
                    statement.on_overdue()
                silence_s = min(self._silence_s, GIVING_UP_S) if self._gives_up else self._silence_s + statement.extra_s
                if statement.is_harmless:
                    silence_s = min(silence_s, self._overdue_s)
                if statement.sent_at is not None and now - statement.sent_at > silence_s:
                    assert statement.connection is not None
                    self._failed(TimeoutError(f"no answer for {silence_s:.0f} s"), statement.began)
                    statement.connection.sever()

    def _look_again(self) -> None:
        """Look whether a home that went away is there again, where nobody else asks it.

        That has a thread of its own, so that it is watched as any: it may get no answer either.
        """
        while not self._closing.wait(WATCH_S):
            if self._failing_since is not None and not self._under_way and not self._gives_up:
                self._look()

    def _look(self) -> None:
        try:
            with self._asking() as connection:
                connection.psycopg.execute("SELECT 1")
        except StorageUnavailable:
            self._closing.wait(BACKOFF_S[1])


def described(url: str) -> str:
    """The home by its address, without what is secret in it. Raises StorageUnavailable: nobody can read that."""
    driver = load_driver()
    try:
        given = driver.conninfo.conninfo_to_dict(url)
    except driver.Error:  # what it says may have the password in it
        problem = "the address of the home cannot be read, postgresql://USER@HOST/DATABASE is expected"
        raise StorageUnavailable(problem) from None
    return f"the home in PostgreSQL at {given.get('host', 'localhost')}, database {given.get('dbname', '')}"


def _head(connection: HomeConnection, key: str) -> Head | None:
    row = connection.psycopg.execute(_HEAD, (key,)).fetchone()
    return None if row is None else _as_head(row)


def _as_head(row: Sequence[Any]) -> Head:
    number, crc, term, nonce = row
    return Head(number, crc, Term(term, nonce))


def _says_nothing(error: Any) -> bool:
    """Whether an error leaves open what became of the statement."""
    code = error.sqlstate
    return code is None or code.startswith(_UNKNOWN)


def _passes(error: Any) -> bool:
    return bool(error.sqlstate.startswith(_PASSING))
