"""The tables of a home in PostgreSQL, how to create them, and checks of the database.

All are in the schema `headwater`, so a database has at most one home.
"""

from __future__ import annotations

import re
import secrets
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.errors import StorageUnavailable
from ...storage.home.port import JOURNAL_KEY
from .connections import load_driver
from .lease import IDENTIFIER, VOUCHES, end_term, is_unchanged

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

SCHEMA_VERSION = 2
"""The format of new homes. A server also supports the format before it, until `headwater home upgrade`."""
POSTGRES_MIN, POSTGRES_MAX = 14, 18
"""The oldest and newest supported major version of PostgreSQL."""

DEAD_SHARE = 0.05
"""PostgreSQL vacuums frames when this share of them is trimmed."""
STANDBY = "this is a standby, which accepts no writes; specify the primary, or several hosts"
TRIED_BYTES = 1024 * 1024
"""The size of a trial write, rolled back, that shows whether the database's disk has space."""
PROMOTION_SINCE = 2
PROMOTIONS = ("ask", "waited-for", "managed")
"""What the owner of a home can declare about its standbys: see `lease`."""
MEMBERS = """\
CREATE TABLE headwater.member (
    id text PRIMARY KEY,
    name text NOT NULL,
    inode bigint NOT NULL,
    device bigint NOT NULL,
    boot text NOT NULL,
    seen bigint NOT NULL,
    seen_nonce bigint NOT NULL,
    held bigint NOT NULL,
    held_nonce bigint NOT NULL,
    timeline integer NOT NULL,
    identifier text NOT NULL,
    ahead text NOT NULL
) WITH (fillfactor = 20);
"""
"""The evidence of each server's copy, see `members`. Unlike the table of servers it is logged, so standbys have it."""

INDEXED = "CREATE INDEX log_by_key ON headwater.log (key);\n"
"""The index is not unique: PostgreSQL would compare a new row version with all versions that an old transaction keeps.
A server locks the journal's head row while it creates a log, so keys stay unique.
"""
VACUUMED = f"""\
ALTER TABLE headwater.frame SET (
    autovacuum_vacuum_scale_factor = {DEAD_SHARE}, toast.autovacuum_vacuum_scale_factor = {DEAD_SHARE}
);
"""
"""New frames reuse the space of trimmed ones only after a vacuum."""

TABLES = f"""\
CREATE SCHEMA IF NOT EXISTS headwater;
CREATE TABLE headwater.home (
    version integer NOT NULL,
    incarnation text PRIMARY KEY,
    seed numeric(20) NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    promotion text NOT NULL DEFAULT '{PROMOTIONS[0]}' CHECK (promotion IN {PROMOTIONS})
);
CREATE UNIQUE INDEX home_is_one ON headwater.home ((true));
CREATE TABLE headwater.log (
    id integer GENERATED ALWAYS AS IDENTITY,
    key text NOT NULL,
    head bigint NOT NULL,
    crc bigint NOT NULL,
    term bigint NOT NULL,
    nonce bigint NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
{INDEXED}CREATE TABLE headwater.frame (
    log integer NOT NULL,
    last bigint NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (log, last)
);
ALTER TABLE headwater.frame ALTER COLUMN content SET STORAGE EXTERNAL;
{VACUUMED}CREATE TABLE headwater.lease (
    holder text NOT NULL,
    addresses text NOT NULL,
    number bigint NOT NULL,
    nonce bigint NOT NULL,
    until timestamptz NOT NULL,
    timeline integer NOT NULL,
    identifier text NOT NULL,
    is_waited_for boolean NOT NULL,
    went_back text NOT NULL,
    losses integer NOT NULL DEFAULT 0,
    since timestamptz NOT NULL DEFAULT 'epoch',
    why text NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX lease_is_one ON headwater.lease ((true));
{MEMBERS}CREATE UNLOGGED TABLE headwater.server (
    process bigint PRIMARY KEY,
    name text NOT NULL,
    addresses text NOT NULL,
    role text NOT NULL,
    term bigint NOT NULL,
    lag_events bigint,
    lag_s float8,
    ahead text NOT NULL,
    version text NOT NULL,
    format integer NOT NULL,
    heard_at timestamptz NOT NULL
);
CREATE TABLE headwater.batch (
    log text NOT NULL,
    name text NOT NULL,
    upload bigint NOT NULL UNIQUE,
    manifest bytea NOT NULL,
    PRIMARY KEY (log, name)
);
CREATE TABLE headwater.staged (
    upload bigint NOT NULL,
    name text NOT NULL,
    piece integer NOT NULL,
    content bytea NOT NULL,
    kept_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (upload, name, piece)
);
ALTER TABLE headwater.staged ALTER COLUMN content SET STORAGE EXTERNAL;
INSERT INTO headwater.log (key, head, crc, term, nonce) VALUES ('{JOURNAL_KEY}', 0, 0, 0, 0);
INSERT INTO headwater.lease (holder, addresses, number, nonce, until, timeline, identifier, is_waited_for, went_back)
VALUES ('', '{{}}', 0, 0, 'epoch', 0, {IDENTIFIER}, false, '');
"""
"""Statements that the owner of the tables executes once. `seed` is an unsigned 64-bit integer, for which PostgreSQL has
no type. The table of servers is unlogged: its rows are rewritten every second, and commits never wait for them.
"""

_PROMOTE = "UPDATE headwater.home SET promotion = %(value)s WHERE promotion <> %(value)s"
ENTRY = "INSERT INTO headwater.home (version, incarnation, seed) VALUES (%s, %s, %s)"

RIGHTS = """\
GRANT USAGE ON SCHEMA headwater TO {role};
GRANT SELECT ON headwater.home TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON headwater.log TO {role};
GRANT SELECT, INSERT, DELETE ON headwater.frame TO {role};
GRANT SELECT, UPDATE ON headwater.lease TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON headwater.server TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON headwater.member TO {role};
GRANT SELECT, INSERT, DELETE ON headwater.batch TO {role};
GRANT SELECT, INSERT, DELETE ON headwater.staged TO {role};
"""
"""The least rights that a role other than the owner needs."""


_FOR_ADMINISTRATOR = """\
-- The tables of a Headwater home. Run this once in its database, as a role that may create a schema there:
--     psql -v ON_ERROR_STOP=1 -d DATABASE -f FILE
"""
_FOR_ROLE = """\
-- The servers' role must exist: CREATE ROLE {role} LOGIN PASSWORD '...';
-- To let servers see the age of other roles' transactions, run as a superuser: GRANT pg_read_all_stats TO {role};
"""
_GRANTED = re.compile(r"GRANT (.+) ON headwater\.(\w+) TO")
_LACKING = """
SELECT name, required FROM unnest(%s::text[], %s::text[]) AS needed (name, required)
WHERE NOT has_table_privilege(to_regclass('headwater.' || name), required)
"""
"""Tables that an older format lacks need no rights."""
_TRY = "INSERT INTO headwater.staged (upload, name, piece, content) VALUES (%s, 'tried', 0, %s)"
_FACTS = f"""
SELECT version, pg_is_in_recovery(), {VOUCHES},
    (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'),
    (SELECT jsonb_object_agg(name, current_setting(name)) FROM unnest(%s::text[]) AS name)
FROM headwater.home
"""
_SETTINGS = [
    "fsync", "full_page_writes", "default_transaction_isolation", "default_transaction_read_only",
    "synchronous_commit", "synchronous_standby_names",
]  # fmt: skip


class HomeIdentity(NamedTuple):
    """The identity of a home."""

    incarnation: str
    seed: int


class _Facts(NamedTuple):
    """The facts that findings are based on, from one query."""

    version: int
    is_standby: bool
    vouches: bool
    configured_commit: str
    """The `synchronous_commit` of a session that does not set it."""
    settings: Mapping[str, str]


class Finding(NamedTuple):
    """A result of `PostgresHome.check`."""

    is_problem: bool
    """Whether the home must not be used before this is fixed."""
    text: str


def initial_sql(role: str | None = None) -> str:
    """All statements that create a new home, for an administrator to run. `role` also gets the needed rights."""
    incarnation, seed = _drawn()
    entry = (
        f"INSERT INTO headwater.home (version, incarnation, seed) VALUES ({SCHEMA_VERSION}, '{incarnation}', {seed});"
    )
    rights = rights_of(role) if role else ""
    for_role = _FOR_ROLE.format(role=_quoted(role)) if role else ""
    return f"{_FOR_ADMINISTRATOR}{for_role}BEGIN;\n{TABLES}{entry}\n{rights}COMMIT;\n"


def make_tables(connection: Connection, role: str | None = None) -> HomeIdentity:
    """Create the home, unless it exists.

    Raises StorageUnavailable if the home is newer or PostgreSQL is too old; psycopg.Error.
    """
    if (major := connection.info.server_version // 10_000) < POSTGRES_MIN:
        raise StorageUnavailable(f"expected PostgreSQL {POSTGRES_MIN} to {POSTGRES_MAX}, got {major}")
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('headwater home init'))")
        if (found := _found(connection)) is None:
            connection.execute(TABLES)
            connection.execute(ENTRY, (SCHEMA_VERSION, *(found := _drawn())))
        if role:
            connection.execute(rights_of(role))
    return found


def set_promotion(connection: Connection, value: str) -> None:
    """Declare which events a promoted standby has, as one of PROMOTIONS. A change ends the current term.

    Raises StorageUnavailable if there is no home or it has an older format; psycopg.Error.
    """
    identity_of(connection)
    [[version]] = connection.execute("SELECT version FROM headwater.home").fetchall()
    if version < PROMOTION_SINCE:
        raise StorageUnavailable(f"the home has version {version}; run headwater home upgrade first")
    with connection.transaction():
        if connection.execute(_PROMOTE, {"value": value}).rowcount and is_unchanged(connection):
            end_term(connection)


def identity_of(connection: Connection) -> HomeIdentity:
    """The identity of the database's home. Raises StorageUnavailable if there is none or a newer one, psycopg.Error."""
    try:
        found = _entered(connection)
    except load_driver().errors.UndefinedTable:
        found = None
    if found is None:
        raise no_home()
    return found


def no_home() -> StorageUnavailable:
    """The error for a database without a home."""
    return StorageUnavailable("this database contains no home; create one with headwater home init")


def of_other_version(version: int) -> StorageUnavailable:
    """The error for a home of an unsupported version."""
    known = f"{SCHEMA_VERSION - 1} and {SCHEMA_VERSION}" if SCHEMA_VERSION > 1 else f"{SCHEMA_VERSION}"
    remedy = (
        "use a newer version of headwater"
        if version > SCHEMA_VERSION
        else "upgrade it with an intermediate version of headwater"
    )
    return StorageUnavailable(f"the home has version {version}, but this headwater supports {known}; {remedy}")


def rights_of(role: str) -> str:
    """The statements that grant a role the rights that a server needs."""
    return RIGHTS.format(role=_quoted(role))


def findings(connection: Connection) -> list[Finding]:
    """Findings about settings on which the durability of acknowledged events depends. Raises psycopg.Error."""
    found: list[Finding] = []
    major = connection.info.server_version // 10_000
    if not POSTGRES_MIN <= major <= POSTGRES_MAX:
        found.append(
            Finding(major < POSTGRES_MIN, f"expected PostgreSQL {POSTGRES_MIN} to {POSTGRES_MAX}, got {major}")
        )
    [row] = connection.execute(_FACTS, (_SETTINGS,)).fetchall()
    facts = _Facts(*row)
    if facts.version < SCHEMA_VERSION:
        text = f"the home has version {facts.version}; run headwater home upgrade when all servers are upgraded"
        found.append(Finding(False, text))
    found += _of_waiting(facts)
    for name in ("fsync", "full_page_writes"):
        if facts.settings[name] != "on":
            found.append(Finding(True, f"{name} is off, so a machine crash can lose all data; set it to on"))
    if (isolation := facts.settings["default_transaction_isolation"]) != "read committed":
        found.append(Finding(True, f"default_transaction_isolation is {isolation}; it must be read committed"))
    if facts.is_standby:
        found.append(Finding(True, STANDBY))
    found += _of_writing(connection, facts)
    return found


def tried(connection: Connection, clock_off_s_max: float) -> Iterator[Finding]:
    """Findings about this machine's clock, which may be off by `clock_off_s_max`, and the database's disk.

    Raises psycopg.Error.
    """
    before, day = time.monotonic(), time.time()
    [[home_s]] = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchall()
    round_trip_s = time.monotonic() - before
    off_s = day + round_trip_s / 2 - home_s
    if abs(off_s) - round_trip_s / 2 > clock_off_s_max:
        text = (
            f"the clock of this machine is {off_s:+.1f} s off the database's, but at most {clock_off_s_max:g} s are "
            "allowed, so a server here cannot take the lease; synchronize both clocks by NTP"
        )
        yield Finding(False, text)
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(_TRY, (secrets.randbits(62), bytes(TRIED_BYTES)))
    except load_driver().errors.DiskFull:
        text = (
            "the disk of the database is full, so nothing can be appended: enlarge it, or free space on it "
            "(replication slots keep old WAL, old transactions keep dead rows)"
        )
        yield Finding(True, text)
    except load_driver().errors.InsufficientPrivilege:
        return  # the finding about lacking rights reports it


def _of_writing(connection: Connection, facts: _Facts) -> Iterator[Finding]:
    """Findings about settings and rights that keep this role from writing."""
    if facts.settings["default_transaction_read_only"] != "off":
        yield Finding(True, "default_transaction_read_only is on, so nothing can be appended: set it to off")
    needed = [(table, right) for rights, table in _GRANTED.findall(RIGHTS) for right in rights.split(", ")]
    tables, rights = zip(*needed, strict=True)
    lacking = connection.execute(_LACKING, (list(tables), list(rights))).fetchall()
    if lacking:
        named = ", ".join(f"{right} on headwater.{table}" for table, right in lacking)
        remedy = "grant them with headwater home init --role, as the owner of the tables"
        yield Finding(True, f"the role {connection.info.user} lacks these rights: {named}; {remedy}")


def pooling(first: Connection, second: Connection) -> list[Finding]:
    """A finding if two connections share sessions, as with a pooler that switches sessions between transactions.

    Raises psycopg.Error.
    """
    mine = secrets.token_hex(8)
    first.execute("SELECT set_config('headwater.session', %s, false)", (mine,))
    seen = [each.execute("SELECT current_setting('headwater.session', true)").fetchone() for each in (first, second)]
    if seen[0] == (mine,) and seen[1] != (mine,):
        return []
    text = (
        "sessions are shared: the address is that of a pooler that switches them between transactions (PgBouncer's "
        "pool_mode transaction or statement), so appends fail; use the address of the database itself, or set "
        "pool_mode to session"
    )
    return [Finding(True, text)]


def _of_waiting(facts: _Facts) -> Iterator[Finding]:
    """Findings about the standbys that commits wait for."""
    commit, names = facts.settings["synchronous_commit"], facts.settings["synchronous_standby_names"]
    if facts.configured_commit == "off":
        yield Finding(False, "synchronous_commit is off: servers set it to on for their own sessions")
    if commit == "local":
        text = "synchronous_commit is local: commits wait for no standby, so a promotion can lose the newest events"
        yield Finding(False, text)
    if not names:
        yield Finding(False, "synchronous_standby_names is empty: a promoted standby may lack the newest events")
    elif commit != "local" and not facts.vouches:
        text = (
            f"synchronous_standby_names is {names!r}: commits do not wait for every standby in this list, so a "
            "promoted one may lack the newest events, and appends stop unless copies prove that it lacks none; name "
            "one standby, or wait for all of them, as in ANY 2 (db_1, db_2)"
        )
        yield Finding(False, text)


def _found(connection: Connection) -> HomeIdentity | None:
    if connection.execute("SELECT to_regclass('headwater.home')").fetchone() == (None,):
        return None
    return _entered(connection)


def _entered(connection: Connection) -> HomeIdentity | None:
    """The row of the home's table; None if it is empty. Raises StorageUnavailable, psycopg.errors.UndefinedTable."""
    row = connection.execute("SELECT version, incarnation, seed FROM headwater.home").fetchone()
    if row is None:
        return None
    version, incarnation, seed = row
    if not max(1, SCHEMA_VERSION - 1) <= version <= SCHEMA_VERSION:
        raise of_other_version(version)
    return HomeIdentity(incarnation, int(seed))


def _drawn() -> HomeIdentity:
    return HomeIdentity(uuid.uuid4().hex, secrets.randbits(64))


def _quoted(role: str) -> str:
    return '"' + role.replace('"', '""') + '"'
