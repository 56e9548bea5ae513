"""What the servers of a home in PostgreSQL tell of themselves there, as statements on one connection.

Each has a row, and rewrites it once a second. It says how a server is, and decides nothing: who appends is the
lease's matter, and who may is the term's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ...formats.decoders import json_decoder

if TYPE_CHECKING:
    from .schema import Connection

HEARD_S = 10.0
"""Who was heard of within that time runs, as far as is known."""
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
_SERVERS = """
SELECT process, name, addresses, role, term, lag_events, lag_s, ahead, version, format,
    extract(epoch FROM clock_timestamp() - heard_at)::float8
FROM headwater.server ORDER BY name, heard_at
"""


class ServerReport(NamedTuple):
    """What one server says of itself."""

    name: str
    addresses: Mapping[str, str]
    """Where its clients reach it, by protocol."""
    role: str
    """See `roles.machine.Role`."""
    term: int
    """In which it appends; 0: it does not."""
    lag_events: int | None
    """So many numbers of all logs its copy lacked at its last look; None: it has not looked."""
    lag_s: float | None
    """For so long at most the copy lacks something; None: it never had all."""
    ahead: str
    """What its copy has and the home has not; empty if there is nothing."""
    version: str
    format: int
    """The newest format of a home that it knows."""
    heard_s: float = 0.0
    """For how long nothing was heard of it."""

    @property
    def runs(self) -> bool:
        """Whether it was heard of lately."""
        return self.heard_s < HEARD_S


def tell(connection: Connection, process: int, report: ServerReport) -> None:
    """That is how the server of that process is now. Raises psycopg.Error, as all that follow do.

    No standby is waited for: who hangs there could not say that it does.
    """
    given = {**report._asdict(), "process": process, "addresses": msgspec.json.encode(report.addresses).decode()}
    connection.execute(_TELL, given)


def leave(connection: Connection, process: int) -> None:
    """The server of that process ends."""
    connection.execute(_LEAVE, (process,))


def connected(connection: Connection) -> set[int]:
    """The processes of servers and commands that have a session."""
    return {int(process, 16) for (process,) in connection.execute(_SESSIONS)}


def servers(connection: Connection) -> list[ServerReport]:
    """Those that were heard of in the last minutes, by name."""
    return [report for _, report in by_process(connection)]


def by_process(connection: Connection) -> list[tuple[int, ServerReport]]:
    """The same, with what tells their processes apart."""
    return [
        (process, ServerReport(name, json_decoder(dict[str, str]).decode(addresses), *others))
        for process, name, addresses, *others in connection.execute(_SERVERS)
    ]
