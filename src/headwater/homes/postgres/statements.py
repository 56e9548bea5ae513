"""Executes statements at a home in PostgreSQL and determines their outcome.

If an answer is lost, the same statement is executed again until its outcome is known. Callers that wait too long are
notified, and silent connections are closed. While the database fails, it is polled.
"""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from ...core.errors import OutcomeUnknown, StorageUnavailable
from ...core.watch.threads import Threads
from ...storage.frames.frame_log import nobody
from .connections import Connections, HomeConnection, load_driver
from .lease import CONFIRM
from .standbys import missing_standbys

logger = logging.getLogger("headwater.homes")

OVERDUE_S = 5.0
"""After this time a waiting caller is notified that the outcome is unknown; nothing more is sent meanwhile."""
SILENCE_S = 10.0
"""The longest round trip before a connection is closed and another one is tried."""
BYTES_PER_S_MIN = 500_000
"""Large statements may take longer, at this rate."""
GIVING_UP_S = 2.0
"""After `gives_up` is set, how long callers wait for a silent connection."""
BACKOFF_S = (0.02, 1.0)
WATCH_S = 0.25
_OPTION = re.compile(r"(?:^|&)(\w{1,40})=", re.ASCII)
_NO_SPACE = "53100"
_DISK_FULL = "the disk of the database is full; free space on it"
_UNREACHABLE = "the home cannot be reached; try again later"
_UNKNOWN = ("08", "57", "40003")
"""SQLSTATE codes or classes that leave open whether the statement was executed: the connection or the server ended, or
a wait for a standby was cut short.
"""
_PASSING = ("25006", "40", "53", "55P03")
"""SQLSTATE codes or classes of transient errors without effect: the server became a standby, conflicts, lack of
resources, a lock that another session held for too long.
"""
_INSUFFICIENT_PRIVILEGE = "42501"
_RIGHTS = "; as the owner of the home, grant the needed rights: headwater home init --role ROLE"


class HomeUnavailable(StorageUnavailable):
    """The database does not answer or refuses statements. No server appends meanwhile."""

    may_pass = True
    """False: a database answered that it refuses this, and will again."""


class _Statement:
    """A statement in progress: its start, its connection, and the callback if it takes too long."""

    def __init__(self, on_overdue: Callable[[], None], size: int = 0) -> None:
        self.is_harmless = False
        """Executing it twice or not at all does no harm. It is abandoned if it takes too long."""
        self.extra_s = size / BYTES_PER_S_MIN
        """Seconds that it may take in addition because of its size."""
        self.began = time.monotonic()
        self.connection: HomeConnection | None = None
        self.on_overdue = on_overdue
        self.is_told = False
        """Whether the caller was notified that it takes too long."""

    def sent(self, connection: HomeConnection) -> None:
        """Note that it is sent on that connection now."""
        self.connection = connection

    @property
    def asked_at(self) -> float | None:
        """When the current round trip began; None if none is in progress."""
        return None if self.connection is None else self.connection.asked_at

    @property
    def waits_since(self) -> float | None:
        """Since when the caller waits for an answer; None if the home answers in steps."""
        return self.began if self.on_overdue is not nobody or self.connection is None else self.asked_at


class Statements:
    """Executes the statements to one home, on its own connections. Thread-safe."""

    def __init__(
        self,
        url: str,
        name: str,
        is_unavailable: Callable[[], bool],
        *,
        overdue_s: float = OVERDUE_S,
        silence_s: float = SILENCE_S,
        connect_s_max: int | None = None,
    ) -> None:
        """`name` is the `application_name`; `is_unavailable` says whether calls are refused at present in any case.

        Raises StorageUnavailable if the address cannot be parsed.
        """
        self._errors: Any = load_driver()
        self.name = described(url)
        """The home's address without its secrets."""
        self.connections = Connections(url, name, connect_s_max=connect_s_max)
        self.overdue_s, self.silence_s = overdue_s, silence_s
        self._is_unavailable = is_unavailable
        self._changing = threading.Lock()
        self._under_way: set[_Statement] = set()
        self.failing_since: float | None = None
        """Since when there was no answer, by the monotonic clock; None if the last attempt was answered."""
        self._failure = self._reason = ""
        """The last failure, and the reason given to callers."""
        self._may_pass = True
        """Whether that may pass by itself."""
        self.missing_standbys: str | None = None
        """See `standbys.missing_standbys`, which is asked when an answer is late, until all are connected."""
        self._is_late = False
        """Whether a statement got no answer in time since that was asked."""
        self._closing = threading.Event()
        self.gives_up = False
        """Callers that wait for an unknown outcome get OutcomeUnknown instead of waiting on."""
        self._watching: list[threading.Thread] = []

    def watch(self) -> None:
        """Start to watch for slow statements and an unreachable home. Call it once."""
        threads = Threads()
        self._watching = [
            threads.start("home", self._watch, self._closing),
            threads.start("home-look", self._look_again, self._closing),
        ]

    def close(self) -> None:
        """Close the connections. Waiting callers get OutcomeUnknown."""
        self._closing.set()
        self.connections.close()
        for each in self._watching:
            each.join()

    @property
    def away(self) -> StorageUnavailable | None:
        """The error to raise if the home has failed for too long; None otherwise."""
        since = self.failing_since
        if since is None or time.monotonic() - since < self.overdue_s:
            return None
        return self.refusal()

    def until_known(
        self,
        key: str,
        attempt: Callable[[HomeConnection, bool], bool],
        on_overdue: Callable[[], None],
        size: int = 0,
        *,
        is_harmless: bool = False,
    ) -> None:
        """Call `attempt` until the outcome is known. It returns whether the server's answer proves durability.

        Its second argument says whether an earlier attempt may have had an effect. Raises what `attempt` raises;
        StorageUnavailable if it had no effect; OutcomeUnknown if `gives_up` is set or `close` is called before the
        outcome is known.
        """
        statement = _Statement(on_overdue, size)
        statement.is_harmless = is_harmless
        is_unknown = False
        """Whether an attempt may have had, or may still have, an effect that was not reported."""
        pause_s = BACKOFF_S[0]
        if self.gives_up and self.failing_since is not None:
            raise self.refusal()
        with self._changing:
            self._under_way.add(statement)
        try:
            while True:
                try:
                    with self.connections.one(statement.sent) as connection:
                        try:
                            if not attempt(connection, is_unknown):
                                self.confirm(connection)
                            self.confirm_if_needed(connection)
                        except self._errors.Error as error:
                            is_unknown = is_unknown or (_says_nothing(error) and not is_harmless)
                            raise
                    self._answered(statement)
                    return
                except self._errors.Error as error:
                    if statement.connection is None or not statement.connection.is_severed:
                        self._failed(error)
                    if not is_unknown and (not may_pass(error) or self._has_failed_for_long(statement.began)):
                        raise self.refusal() from None
                    if self._closing.is_set() or self.gives_up:
                        raise (OutcomeUnknown(key) if is_unknown else self.refusal()) from None
                self._closing.wait(pause_s * random.uniform(0.5, 1))
                pause_s = min(pause_s * 2, BACKOFF_S[1])
        finally:
            with self._changing:
                self._under_way.discard(statement)

    @contextmanager
    def asking(self) -> Iterator[HomeConnection]:
        """A connection for statements that can be repeated freely. Raises StorageUnavailable."""
        statement = _Statement(nobody)
        try:
            with self._changing:
                self._under_way.add(statement)
            with self.connections.one(statement.sent) as connection:
                yield connection
        except self._errors.Error as error:
            self._failed(error)
            raise self.refusal() from None
        else:
            self._answered(statement)
        finally:
            with self._changing:
                self._under_way.discard(statement)

    def confirm(self, connection: HomeConnection) -> None:
        """Wait until everything visible now is durable: a commit that waits for a standby covers all earlier ones."""
        while True:
            connection.is_unconfirmed = False
            connection.psycopg.execute(CONFIRM)
            if not connection.is_unconfirmed:
                return

    def confirm_if_needed(self, connection: HomeConnection) -> None:
        if connection.is_unconfirmed:
            self.confirm(connection)

    def _answered(self, statement: _Statement) -> None:
        """Note the answer. Recovery is not logged while another statement is overdue."""
        with self._changing:
            if any(each.is_told and each is not statement for each in self._under_way):
                return
            since, self.failing_since = self.failing_since, None
        if since is not None:
            logger.info("%s answers again, after %.1f s", self.name, time.monotonic() - since)

    def _failed(self, error: Exception, since: float | None = None) -> None:
        with self._changing:
            self._failure = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            if getattr(error, "sqlstate", None) == _INSUFFICIENT_PRIVILEGE:
                self._failure += _RIGHTS
            self._reason = _DISK_FULL if getattr(error, "sqlstate", None) == _NO_SPACE else _UNREACHABLE
            self._may_pass = not isinstance(error, self._errors.Error) or may_pass(error)
            is_news = self.failing_since is None
            self.failing_since = self.failing_since or since or time.monotonic()
            self._is_late = self._is_late or isinstance(error, TimeoutError)
        if self._closing.is_set():
            return
        if is_news:
            logger.warning("%s: %s; retrying", self.name, self._failure)
        self.connections.drop_idle()

    def _has_failed_for_long(self, since: float) -> bool:
        return self._is_unavailable() or time.monotonic() - since > self.overdue_s

    def refusal(self) -> HomeUnavailable:
        """An error with the last failure of the home."""
        refusal = HomeUnavailable(
            f"{self.name}: {self._failure or 'it is closed'}",
            reason=self._reason or _UNREACHABLE,
        )
        refusal.may_pass = self._may_pass
        return refusal

    def _watch(self) -> None:
        """Notify callers that wait too long, and close silent connections."""
        while not self._closing.wait(WATCH_S):
            now = time.monotonic()
            with self._changing:
                under_way = list(self._under_way)
            for statement in under_way:
                waits_since = statement.waits_since
                if waits_since is not None and now - waits_since > self.overdue_s + statement.extra_s:
                    self._failed(TimeoutError(f"no answer for {self.overdue_s:g} s"), waits_since)
                    statement.is_told = True
                    statement.on_overdue()
                silence_s = min(self.silence_s, GIVING_UP_S) if self.gives_up else self.silence_s + statement.extra_s
                if statement.is_harmless:
                    silence_s = min(silence_s, self.overdue_s)
                asked_at = statement.asked_at
                if asked_at is not None and now - asked_at > silence_s:
                    assert statement.connection is not None
                    self._failed(TimeoutError(f"no answer for {silence_s:.1f} s"), statement.began)
                    statement.connection.sever()

    def _look_again(self) -> None:
        """Check whether a failed home answers again, and what a late statement waits for.

        This runs in a separate thread, so that this statement is watched for silence too.
        """
        while not self._closing.wait(WATCH_S):
            is_failed = self.failing_since is not None and not self._under_way
            if (is_failed or self._is_late or self.missing_standbys) and not self.gives_up:
                self._look()

    def _look(self) -> None:
        self._is_late = False
        try:
            with self.asking() as connection:
                found = missing_standbys(connection.psycopg)
        except StorageUnavailable:
            self._closing.wait(BACKOFF_S[1])
            return
        known, self.missing_standbys = self.missing_standbys, found
        if found is not None:
            if found != known:
                logger.warning("%s waits for a standby: %s", self.name, found)
            self._closing.wait(BACKOFF_S[1])


def described(url: str) -> str:
    """The home's address without its secrets. Raises StorageUnavailable if it cannot be parsed."""
    driver = load_driver()
    try:
        given = driver.conninfo.conninfo_to_dict(url)
    except driver.Error:  # its message may contain the password
        problem = f"cannot parse the address of the home{_misspelt(url)}; expected postgresql://USER@HOST/DATABASE"
        raise StorageUnavailable(problem) from None
    return f"the home in PostgreSQL at {given.get('host', 'localhost')}, database {given.get('dbname', '')}"


def _misspelt(url: str) -> str:
    """A hint for an unknown option in the address: the valid option that was probably meant.

    The name in the address may be part of a password and is never shown. Empty if the part with options may belong to a
    password.
    """
    options = url.partition("?")[2]
    known = {option.keyword.decode() for option in load_driver().pq.Conninfo.get_defaults()} | {"ssl"}
    unknown = [] if "@" in options else [name for name in _OPTION.findall(options) if name not in known]
    close = [found for name in unknown for found in get_close_matches(name, known, 1)]
    return f": unknown option (did you mean {close[0]}?)" if close else ""


def may_pass(error: Any) -> bool:
    """Whether an error of psycopg may be another one, or none, if the same is asked again."""
    return _says_nothing(error) or _passes(error)


def _says_nothing(error: Any) -> bool:
    """Whether an error leaves the outcome of the statement open."""
    code = error.sqlstate
    return code is None or code.startswith(_UNKNOWN)


def _passes(error: Any) -> bool:
    return bool(error.sqlstate.startswith(_PASSING))
