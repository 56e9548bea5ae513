"""The formats of a home in PostgreSQL, and how one becomes the next: by one command, when all its servers know it.

A server works with a home of the format that it makes, and with the one before it. So servers are replaced one after
the other, and then the home is changed. Whoever slept meanwhile is fenced off, as by a new primary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...core.errors import StorageUnavailable
from . import lease, schema, servers
from .lease import VOUCHES

if TYPE_CHECKING:
    from .schema import Connection

STEPS: Mapping[int, str] = {
    1: f"""
ALTER TABLE headwater.home ADD COLUMN promotion text NOT NULL DEFAULT '{schema.PROMOTIONS[0]}'
    CHECK (promotion IN {schema.PROMOTIONS});
ALTER TABLE headwater.lease RENAME COLUMN is_synchronous TO is_waited_for;
ALTER TABLE headwater.lease ADD COLUMN identifier text NOT NULL DEFAULT '',
    ADD COLUMN since timestamptz NOT NULL DEFAULT 'epoch', ADD COLUMN why text NOT NULL DEFAULT '';
ALTER TABLE headwater.log DROP CONSTRAINT log_pkey, DROP CONSTRAINT log_key_key;
{schema.INDEXED}{schema.MEMBERS}{schema.VACUUMED}
UPDATE headwater.home SET promotion = 'waited-for' WHERE {VOUCHES};
""",
}
"""The statements that make the next format of each earlier one. A column that has another name keeps out a server of
before, which slept meanwhile. In which cluster the home was, its journal says: see `storage.home.identifier`."""
_VERSION = "SELECT version FROM headwater.home FOR UPDATE"
_SET_VERSION = "UPDATE headwater.home SET version = %s"


def upgrade(connection: Connection, role: str | None = None) -> tuple[int, int]:
    """Bring the home to the format that this version makes; answers which it had and which it has, all or none of it.

    `role`: who may use what is new, as for `make_tables`. Raises StorageUnavailable: there is no home, or one of a
    format that is unknown here, or a server is connected that does not know the new one; psycopg.Error.
    """
    newest = schema.SCHEMA_VERSION
    with connection.transaction():
        if connection.execute("SELECT to_regclass('headwater.home')").fetchone() == (None,):
            raise schema.no_home()
        [[version]] = connection.execute(_VERSION).fetchall()
        if version > newest or any(each not in STEPS for each in range(version, newest)):
            raise schema.of_other_version(version)
        if version == newest:
            return version, newest
        _refuse_earlier(connection, newest)
        for each in range(version, newest):
            connection.execute(STEPS[each])
        if role:
            connection.execute(schema.rights_of(role))
        connection.execute(_SET_VERSION, (newest,))
        lease.end_term(connection)
    return version, newest


def _refuse_earlier(connection: Connection, newest: int) -> None:
    """Raises StorageUnavailable if somebody is connected who may not know the new format."""
    connected = servers.connected(connection)
    known, earlier = set(), []
    for process, report in servers.by_process(connection):
        known.add(process)
        if report.format < newest and (report.runs or process in connected):
            earlier.append(f"{report.name} (headwater {report.version})")
    if earlier:
        raise StorageUnavailable(
            f"these servers do not know version {newest} of the home: {', '.join(earlier)}; replace them first"
        )
    if connected - known:
        raise StorageUnavailable(
            f"{len(connected - known)} processes are connected that do not tell their version: a server that begins, "
            "or a command; wait a moment, or stop them"
        )
