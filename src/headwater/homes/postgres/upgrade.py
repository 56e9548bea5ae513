"""Upgrades the format of a home in PostgreSQL: one command, once all servers know the new format.

A server supports the format that it creates and the one before. So servers are replaced one after another, and then the
home is upgraded. A server that was suspended meanwhile is fenced off, as by a new primary.
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
"""The statements that upgrade each earlier format to the next. A renamed column fences off an older server that was
suspended meanwhile. The journal records the cluster of the home: see `storage.home.identifier`.
"""
_VERSION = "SELECT version FROM headwater.home FOR UPDATE"
_SET_VERSION = "UPDATE headwater.home SET version = %s"


def upgrade(connection: Connection, role: str | None = None) -> tuple[int, int]:
    """Upgrade the home to the newest format, in one transaction. Returns the old and the new format.

    `role` gets rights on new tables, as for `make_tables`. Raises StorageUnavailable if there is no home, its format is
    unknown, or a connected server does not know the new one; psycopg.Error.
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
    """Raise StorageUnavailable if a connected server may not know the new format."""
    connected = servers.connected(connection)
    known, earlier = set(), []
    for process, report in servers.by_process(connection):
        known.add(process)
        if report.format < newest and (report.runs or process in connected):
            earlier.append(f"{report.name} (headwater {report.version})")
    if earlier:
        raise StorageUnavailable(
            f"these servers do not support version {newest} of the home: {', '.join(earlier)}; upgrade them first"
        )
    if connected - known:
        raise StorageUnavailable(
            f"{len(connected - known)} connected processes do not report their version: servers that are starting, "
            "or commands; wait a moment, or stop them"
        )
