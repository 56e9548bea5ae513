"""A small pool of connections to a home in PostgreSQL, which closes connections that are silent for too long.

Statements are never cancelled, because PostgreSQL answers a cancelled wait for a synchronous standby like a confirmed
commit. Instead the silent connection is closed, and the outcome of the statement is determined on another one.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.errors import StorageUnavailable
from ...formats.installing import how_to_install

if TYPE_CHECKING:
    import psycopg
    from psycopg import pq

    Connection = psycopg.Connection[tuple[Any, ...]]

CONNECTIONS_MAX = 8
"""The most concurrent commits; PostgreSQL flushes them together."""
CONNECT_S = 5
"""Connect timeout of each host, unless the address has a `connect_timeout`. Connecting takes two round trips, or six
with TLS and a password.
"""
LOCK_TIMEOUT_MS = 2_000
"""The longest wait for a lock on a log's head row. Then the statement is tried again."""
_BINARY = 1
"""The binary format code of PostgreSQL's protocol."""
_UNCONFIRMED = "canceling wait for synchronous replication"
PINNED = """
SELECT set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), false)
"""
"""Pins the `synchronous_commit` of the session against later changes of the configuration; off becomes on."""
_NAME = "SELECT set_config('application_name', %s, false)"
_SETTINGS = f"""
SET default_transaction_isolation = 'read committed';
SET lock_timeout = {LOCK_TIMEOUT_MS};
SET idle_in_transaction_session_timeout = 10000;
SET statement_timeout = 0;
{PINNED};
"""


class Prepared(NamedTuple):
    """A statement that is prepared once per connection, with binary parameters."""

    name: bytes
    sql: bytes
    types: Sequence[int]


class HomeConnection:
    """A connection that knows whether the required standbys confirmed its last commit."""

    def __init__(self, url: str, name: str, connect_s: int = CONNECT_S, hosts: Hosts | None = None) -> None:
        """Connect, with that timeout for each host. `name` is the `application_name`.

        `hosts`: the hosts of the address, in the order to try. Raises psycopg.OperationalError.
        """
        driver = load_driver()
        self.name = name
        named = {} if hosts is None else hosts.ordered()
        given = {"autocommit": True, "connect_timeout": connect_s, "application_name": name, **named}
        given["prepare_threshold"] = None  # preparing takes another round trip
        try:
            self.psycopg: Connection = _connection_class().connect(url, **given)
        except driver.errors.ConnectionTimeout as error:
            remedy = "on a slow network, set connect_timeout in the address and increase home_lease_ms"
            raise driver.errors.ConnectionTimeout(f"{error} ({connect_s} s for each host); {remedy}") from None
        if hosts is not None:
            hosts.answered(self.psycopg.info.host, self.psycopg.info.port)
        self.is_unconfirmed = False
        """Whether a wait for a standby was cancelled: the commit is visible, but may be lost."""
        self.is_severed = False
        """Whether this side closed the connection."""
        self.psycopg.add_notice_handler(self._notice)
        self._is_prepared = False
        self._statements: set[bytes] = set()

    @property
    def asked_at(self) -> float | None:
        """When the pending request was sent, by the monotonic clock; None if there is none."""
        asked_at: float | None = self.psycopg.asked_at  # type: ignore[attr-defined]
        return asked_at

    def prepare(self, name: str) -> None:
        """Set the session's settings and name, unless they are set. Raises psycopg.Error."""
        if not self._is_prepared:
            self.psycopg.execute(_SETTINGS)
            self._is_prepared = True
        if name != self.name:
            self.psycopg.execute(_NAME, (name,))
            self.name = name

    def execute(self, statement: Prepared, values: Sequence[bytes]) -> bytes | None:
        """Execute a statement. Returns the first value of its row, in binary; None if there is no row.

        Blocks until the answer. Raises psycopg.Error.
        """
        if statement.name not in self._statements:
            [result] = self._pipe((statement, values))
        else:
            with self._asking() as libpq:
                result = _checked(libpq.exec_prepared(statement.name, values, [_BINARY] * len(values), _BINARY))
        return result.get_value(0, 0) if result.ntuples else None

    def execute_and_look(
        self, statement: Prepared, values: Sequence[bytes], look: Prepared
    ) -> tuple[bytes | None, str]:
        """Execute a statement, and `look` after its transaction, in one round trip.

        Returns the result as `execute` does, and the value of `look`. Blocks until the answer. Raises psycopg.Error.
        """
        changed, seen = self._pipe((statement, values), (look, ()))
        return changed.get_value(0, 0) if changed.ntuples else None, (seen.get_value(0, 0) or b"").decode()

    def _pipe(self, *asked: tuple[Prepared, Sequence[bytes]]) -> list[pq.abc.PGresult]:
        """Execute statements in one round trip, each in a separate transaction. Prepares them if needed."""
        unknown = [statement for statement, _ in asked if statement.name not in self._statements]
        with self._asking() as libpq:
            libpq.enter_pipeline_mode()
            for each in unknown:
                libpq.send_prepare(each.name, each.sql, each.types)
                libpq.pipeline_sync()
            for statement, values in asked:
                libpq.send_query_prepared(statement.name, values, [_BINARY] * len(values), _BINARY)
                libpq.pipeline_sync()
            waiting = select.poll()
            waiting.register(libpq.socket, select.POLLIN | select.POLLOUT)
            while libpq.flush():
                waiting.poll()
                libpq.consume_input()
            waiting.modify(libpq.socket, select.POLLIN)
            results = [_piped(libpq, waiting) for _ in range(len(unknown) + len(asked))]
            libpq.exit_pipeline_mode()
        self._statements.update(each.name for each in unknown)
        return results[len(unknown) :]

    @contextlib.contextmanager
    def _asking(self) -> Iterator[pq.abc.PGconn]:
        """Mark the connection as waiting for an answer while libpq is used directly."""
        self.psycopg.asked_at = time.monotonic()  # type: ignore[attr-defined]
        try:
            yield self.psycopg.pgconn
        finally:
            self.psycopg.asked_at = None  # type: ignore[attr-defined]

    def sever(self) -> None:
        """Shut the connection down, so that a waiting caller gets an error. Thread-safe."""
        self.is_severed = True
        with contextlib.suppress(OSError, self.psycopg.OperationalError):  # it is closed already
            twin = socket.socket(fileno=os.dup(self.psycopg.pgconn.socket))
            with twin:
                twin.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self.psycopg.close()

    def _notice(self, diagnostic: Any) -> None:
        if _UNCONFIRMED in (diagnostic.message_primary or ""):
            self.is_unconfirmed = True


class Connections:
    """At most `size` connections to one home. Thread-safe."""

    def __init__(self, url: str, name: str, size: int = CONNECTIONS_MAX, *, connect_s_max: int | None = None) -> None:
        """`connect_s_max`: the longest connect timeout of a host, even if the address allows more.

        Raises psycopg.ProgrammingError if the address cannot be parsed.
        """
        self.url = url
        given = load_driver().conninfo.conninfo_to_dict(url)
        self._hosts = Hosts(given)
        connect_s = int(given.get("connect_timeout") or CONNECT_S)
        self._connect_s = connect_s if connect_s_max is None else min(connect_s, connect_s_max)
        self._name = name
        self._places = threading.Semaphore(size)
        self._changing = threading.Lock()
        self._idle: list[HomeConnection] = []
        self._used: set[HomeConnection] = set()
        self._is_closed = False

    @contextlib.contextmanager
    def one(self, on_taken: Callable[[HomeConnection], None]) -> Iterator[HomeConnection]:
        """A connection to use; it is dropped if its use raises. `on_taken` gets it before anything is sent.

        Raises psycopg.OperationalError if connecting failed; then nothing was sent.
        """
        with self._places:
            with self._changing:
                if self._is_closed:
                    raise load_driver().OperationalError("the connections to the home are closed")
                taken = self._idle.pop() if self._idle else None
            taken = taken or HomeConnection(self.url, self._name, self._connect_s, self._hosts)
            with self._changing:
                self._used.add(taken)
            try:
                on_taken(taken)
                taken.prepare(self._name)
                yield taken
            except BaseException:
                taken.close()
                raise
            finally:
                with self._changing:
                    self._used.discard(taken)
                    is_kept = not self._is_closed
                    if is_kept and not taken.psycopg.closed:
                        self._idle.append(taken)
                if not is_kept:
                    taken.close()

    def rename(self, name: str) -> None:
        """Change the name of all connections, each before its next use."""
        self._name = name

    def drop_idle(self) -> None:
        """Close idle connections, because their server has gone away."""
        with self._changing:
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    def close(self) -> None:
        """Close all connections. Callers that use one get an error."""
        with self._changing:
            self._is_closed = True
            used, idle = list(self._used), self._idle
            self._idle = []
        for each in used:
            each.sever()
        for each in idle:
            each.close()


@functools.cache
def _connection_class() -> Any:
    """A connection class that records when the pending request was sent."""

    class WatchedConnection(load_driver().Connection):  # type: ignore[misc]
        asked_at: float | None = None

        def wait(self, *args: Any, **kwargs: Any) -> Any:
            self.asked_at = time.monotonic()
            try:
                return super().wait(*args, **kwargs)
            finally:
                self.asked_at = None

    return WatchedConnection


def _piped(libpq: pq.abc.PGconn, waiting: select.poll) -> pq.abc.PGresult:
    """The result of the next statement in the pipeline, after the end of its transaction was read.

    libpq would wait without letting other threads run.
    """
    found: list[pq.abc.PGresult | None] = []
    while len(found) < 3:  # the result, its end, and the end of the transaction
        while libpq.is_busy():
            waiting.poll()
            libpq.consume_input()
        found.append(libpq.get_result())
    assert found[0] is not None
    return _checked(found[0])


def _checked(result: pq.abc.PGresult) -> pq.abc.PGresult:
    """Return the result. Raises psycopg.Error if the statement failed."""
    driver = load_driver()
    if result.status not in (driver.pq.ExecStatus.COMMAND_OK, driver.pq.ExecStatus.TUPLES_OK):
        raise driver.errors.error_from_result(result)
    return result


def load_driver() -> Any:
    """The psycopg 3 module. Raises StorageUnavailable if it is not installed."""
    try:
        import psycopg
    except ImportError:
        raise StorageUnavailable(f"a home in PostgreSQL requires psycopg: {how_to_install('postgres')}") from None
    return psycopg


_LISTS = ("host", "hostaddr", "port")


class Hosts:
    """The hosts of a home's address, with the one that answered last first.

    libpq tries them in order (`postgresql://a,b:5433/x`), so a dead first host would delay each connection by its
    timeout. Thread-safe.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        """`given`: the connection parameters of the address, as libpq parses them."""
        lists = {name: given[name].split(",") for name in _LISTS if given.get(name)}
        size = max(map(len, lists.values()), default=0)
        if len(ports := lists.get("port", [])) == 1:
            lists["port"] = ports * size
        self._lists = lists
        self._is_known = size > 1 and "host" in lists and all(len(each) == size for each in lists.values())
        """Whether the lists were parsed; otherwise they are left to libpq."""
        self._first = 0

    def ordered(self) -> dict[str, str]:
        """The parameters of all hosts, with the one that answered last first; empty if there is one host."""
        first = self._first
        if not self._is_known:
            return {}
        return {name: ",".join(each[first:] + each[:first]) for name, each in self._lists.items()}

    def each(self) -> list[dict[str, str]]:
        """The parameters of each host; empty if there is one host."""
        if not self._is_known:
            return []
        return [dict(zip(self._lists, one, strict=True)) for one in zip(*self._lists.values(), strict=True)]

    def answered(self, host: str, port: int) -> None:
        """Note that a host accepted a connection."""
        if not self._is_known:
            return
        ports = self._lists.get("port", [""] * len(self._lists["host"]))
        for index, (name, listed) in enumerate(zip(self._lists["host"], ports, strict=True)):
            if name == host and listed in ("", str(port)):
                self._first = index
                return
