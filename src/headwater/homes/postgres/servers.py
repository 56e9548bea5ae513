"""SQL for the status reports of a home's servers in PostgreSQL.

Each server has a row and rewrites it once a second. The rows are for information only: the lease selects the server
that appends, and the term decides which server may.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ...formats.decoders import json_decoder

if TYPE_CHECKING:
    from .schema import Connection

HEARD_S = 10.0
"""A server that reported within this time counts as running."""
_FORGOTTEN_S = 600
_TELL = f"""
WITH reported AS (
INSERT INTO headwater.server (process, name, addresses, role, term, lag_events, lag_s, ahead, version, format, heard_at)
VALUES (%(process)s, %(name)s, %(addresses)s, %(role)s, %(term)s, %(lag_events)s, %(lag_s)s, %(ahead)s, %(version)s,
    %(format)s, clock_timestamp())
ON CONFLICT (process) DO UPDATE SET role = excluded.role, term = excluded.term, lag_events = excluded.lag_events,
    lag_s = excluded.lag_s, ahead = excluded.ahead, heard_at = excluded.heard_at
), forgotten AS (
DELETE FROM headwater.server WHERE process <> %(process)s AND (
    heard_at < clock_timestamp() - {_FORGOTTEN_S} * interval '1 s'
    OR name = %(name)s AND heard_at < clock_timestamp() - {HEARD_S} * interval '1 s')
)
SELECT set_config('synchronous_commit', 'off', true)
"""
"""One statement, so that it takes one round trip."""
_LEAVE = "DELETE FROM headwater.server WHERE process = %s"
_SESSIONS = """
SELECT DISTINCT split_part(application_name, ' ', 3) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name ~ '^headwater (primary|replica) '
"""
_LEASES = """
SELECT DISTINCT split_part(application_name, ' ', 4)::integer AS length_ms FROM pg_stat_activity
WHERE datname = current_database() AND application_name ~ '^headwater replica [0-9a-f]+ [0-9]{1,9}$' ORDER BY length_ms
"""
_SERVERS = """
SELECT process, name, addresses, role, term, lag_events, lag_s, ahead, version, format,
    extract(epoch FROM clock_timestamp() - heard_at)::float8
FROM headwater.server ORDER BY name, heard_at
"""


class ServerReport(NamedTuple):
    """The status report of one server."""

    name: str
    addresses: Mapping[str, str]
    """Its addresses for clients, by protocol."""
    role: str
    """See `roles.machine.Role`."""
    term: int
    """The term in which it appends; 0 if it does not."""
    lag_events: int | None
    """The events of all logs that its copy lacked at its last check; None before the first check."""
    lag_s: float | None
    """The longest time that the copy may have been behind, in seconds; None if it never was complete."""
    ahead: str
    """What its copy has and the home lacks; empty if nothing."""
    version: str
    format: int
    """The newest format of a home that it supports."""
    heard_s: float = 0.0
    """Seconds since its last report."""

    @property
    def runs(self) -> bool:
        """Whether it reported recently."""
        return self.heard_s < HEARD_S


def tell(connection: Connection, process: int, report: ServerReport) -> None:
    """Store the report of that process's server. Raises psycopg.Error, as all functions below do.

    This waits for no standby, so that a server whose commits hang can still report it.
    """
    given = {**report._asdict(), "process": process, "addresses": msgspec.json.encode(report.addresses).decode()}
    connection.execute(_TELL, given)


def leave(connection: Connection, process: int) -> None:
    """Delete the report of that process's server."""
    connection.execute(_LEAVE, (process,))


def connected(connection: Connection) -> set[int]:
    """The processes of servers and commands with a session."""
    return {int(process, 16) for (process,) in connection.execute(_SESSIONS)}


def lease_lengths(connection: Connection) -> list[int]:
    """The lengths of leases, in ms, for which connected servers are set, ascending. Older servers do not show it."""
    return [length_ms for (length_ms,) in connection.execute(_LEASES)]


def servers(connection: Connection) -> list[ServerReport]:
    """The reports of the last minutes, ordered by name."""
    return [report for _, report in by_process(connection)]


def by_process(connection: Connection) -> list[tuple[int, ServerReport]]:
    """The same, each with its process."""
    return [
        (process, ServerReport(name, json_decoder(dict[str, str]).decode(addresses), *others))
        for process, name, addresses, *others in connection.execute(_SERVERS)
    ]
