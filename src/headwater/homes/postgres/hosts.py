"""Finds the hosts of a home's address that accept writes. If there are two after a promotion, two servers may append.

A host that does not answer may or may not accept writes, and its earlier answers prove nothing: after a failover the
old primary stays silent, while a partitioned one continues. So a silent host does not count, with one exception: if two
hosts accepted writes at the same time and one of them stops answering, it still counts until it answers that it is read
only, or its machine refuses the connection.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .connections import CONNECT_S, Hosts, load_driver
from .statements import HomeUnavailable, described, may_pass

if TYPE_CHECKING:
    from psycopg import pq

    from .connections import Connection

PATIENCE_S = 2
"""A host that does not answer within this time counts as silent."""
_DEFAULT_PORT = 5432
_PASSING = {1: "is starting or stopping", 2: "does not answer"}
"""What a ping of libpq says of a host that refuses every login: `PQPING_REJECT`, `PQPING_NO_RESPONSE`."""
_ASK = b"""
SELECT pg_postmaster_start_time()::text || (SELECT system_identifier FROM pg_control_system())
WHERE current_setting('transaction_read_only') = 'off'
"""
"""Identifies the instance that accepts writes; no row if it is a standby or a read-only primary. An instance with two
names has one identity.
"""


class WritableHosts:
    """Finds the hosts of one address that accept writes. Not thread-safe."""

    def __init__(self, url: str) -> None:
        """Raises psycopg.ProgrammingError if the address cannot be parsed."""
        self._url = url
        self._hosts = Hosts(load_driver().conninfo.conninfo_to_dict(url)).each()
        self._connections: dict[str, Connection] = {}
        self.silent: list[str] = []
        """The hosts that did not answer at the last check. Whether they accept writes is unknown."""
        self._conflict: dict[str, bytes] = {}
        """Instances that accepted writes at the same time, by host."""

    @property
    def are_several(self) -> bool:
        """Whether the address names more than one host."""
        return len(self._hosts) > 1

    def look(self) -> list[str]:
        """The hosts known to accept writes, one per instance."""
        found: dict[bytes, str] = {}
        self.silent = []
        for host in self._hosts:
            name = _name(host)
            try:
                instance = self._instance(name, host)
            except (load_driver().Error, TimeoutError):
                self.silent.append(name)
                instance = self._conflict.get(name)
                if instance is not None and _is_unheard(host):
                    instance = None
            if instance is not None:
                found.setdefault(instance, name)
        self._conflict = {name: instance for instance, name in found.items()} if len(found) > 1 else {}
        return list(found.values())

    def close(self) -> None:
        """Close the connections."""
        for each in self._connections.values():
            each.close()

    def _instance(self, name: str, host: Mapping[str, str]) -> bytes | None:
        """The instance that accepts writes at that host; None if it answers that it is read only.

        Raises TimeoutError or psycopg.Error if it does not answer.
        """
        driver: Any = load_driver()
        connection = self._connections.pop(name, None)
        try:
            if connection is None:
                connection = driver.connect(
                    self._url, autocommit=True, connect_timeout=CONNECT_S, target_session_attrs="any",
                    application_name="headwater hosts", **host,
                )  # fmt: skip
            found = _answer(connection.pgconn)
        except (driver.Error, TimeoutError):
            if connection is not None:
                connection.close()
            raise
        self._connections[name] = connection
        return found


def without_writes(url: str) -> str | None:
    """Why no host of the address takes writes, though a server may wait for one; None: a host does.

    Raises HomeUnavailable: a host refuses the login, or the database, so that waiting is of no use.
    """
    driver: Any = load_driver()
    given = driver.conninfo.conninfo_to_dict(url)
    asked = {"connect_timeout": int(given.get("connect_timeout") or CONNECT_S), "application_name": "headwater hosts"}
    with suppress(driver.Error, TimeoutError), driver.connect(url, autocommit=True, **asked) as connection:
        if _answer(connection.pgconn) is not None:
            return None
    states = []
    for host in Hosts(given).each() or [{}]:
        address = driver.conninfo.make_conninfo(url, **asked, **host, target_session_attrs="any")
        try:
            with driver.connect(address, autocommit=True) as connection:
                state = "accepts no writes" if _answer(connection.pgconn) is None else "accepts writes"
        except (driver.errors.ConnectionTimeout, TimeoutError):
            state = _PASSING[2]
        except driver.Error as error:
            ping = driver.pq.PGconn.ping(address.encode())  # it has just answered, so this does not wait
            if ping not in _PASSING and not (error.sqlstate and may_pass(error)):
                refusal = HomeUnavailable(f"{described(url)}: {str(error).strip().splitlines()[0]}")
                refusal.may_pass = False
                raise refusal from None
            state = _PASSING.get(ping, "closes the connection")
        states.append(f"{_name(host or given)} {state}")
    return "; ".join(states)


def _name(host: Mapping[str, str]) -> str:
    return ":".join(filter(None, (host.get("host") or host.get("hostaddr") or "localhost", host.get("port"))))


def both_write(hosts: Sequence[str]) -> str | None:
    """The problem and its remedy if several hosts accept writes; None otherwise."""
    if len(hosts) < 2:
        return None
    return (
        f"{' and '.join(hosts)} accept writes: stop the database that should not be the primary, and make it a standby "
        "of the other one (pg_rewind, or a new base backup); until then, no server accepts appends"
    )


def unknown_hosts(hosts: Sequence[str]) -> str | None:
    """The doubt that silent hosts leave; None if all answered."""
    if not hosts:
        return None
    return f"{' and '.join(hosts)} did not answer, so it is unknown whether another database accepts writes"


def _is_unheard(host: Mapping[str, str]) -> bool:
    """Whether the machine of a host refuses connections, so that no database listens."""
    name, port = host.get("hostaddr") or host["host"], int(host.get("port") or _DEFAULT_PORT)
    try:
        if name.startswith("/"):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(PATIENCE_S)
                sock.connect(f"{name}/.s.PGSQL.{port}")
        else:
            socket.create_connection((name, port), PATIENCE_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def _answer(libpq: pq.abc.PGconn) -> bytes | None:
    """The host's answer to `_ASK`. Raises TimeoutError, psycopg.Error."""
    ends_at = time.monotonic() + PATIENCE_S
    waiting = select.poll()
    waiting.register(libpq.socket, select.POLLIN)
    libpq.send_query(_ASK)
    libpq.flush()
    results = []
    while True:
        while libpq.is_busy():
            if not waiting.poll(max(0.0, ends_at - time.monotonic()) * 1000):
                raise TimeoutError
            libpq.consume_input()
        if (result := libpq.get_result()) is None:
            break
        results.append(result)
    [result] = results
    driver = load_driver()
    if result.status != driver.pq.ExecStatus.TUPLES_OK:
        raise driver.errors.error_from_result(result)
    return result.get_value(0, 0) if result.ntuples else None
