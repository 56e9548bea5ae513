"""SQL for the lease and the term of a home in PostgreSQL.

The lease is a row, timed only by the database's clock. The term is in each log's head row, which commits check: writing
a new term there is a fence. `home` executes these statements.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

import msgspec

from ...formats.decoders import json_decoder
from ...storage.frames.frame_log import Term
from ...storage.home.port import JOURNAL_KEY, REMEDY
from .connections import load_driver

if TYPE_CHECKING:
    import psycopg

    from .connections import Connection

    Cursor = psycopg.ClientCursor[tuple[Any, ...]]

TIMELINE = "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer"
"""The timeline that the database writes. It changes when a standby is promoted or a backup restored."""
_ON_TIMELINE = f"{TIMELINE} = %(timeline)s"
CONFIRM = f"UPDATE headwater.log SET head = head WHERE key = '{JOURNAL_KEY}'"
"""A commit that waits for standbys. When it returns, the standbys have all earlier commits too."""
_FENCE_JOURNAL = f"""
UPDATE headwater.log SET term = %(number)s, nonce = %(nonce)s
WHERE key = '{JOURNAL_KEY}' AND {_ON_TIMELINE} AND (term < %(number)s OR term = %(number)s AND nonce = %(nonce)s)
"""
_FENCE_LOGS = f"""
UPDATE headwater.log SET term = %(number)s, nonce = %(nonce)s
WHERE key <> '{JOURNAL_KEY}' AND {_ON_TIMELINE} AND term < %(number)s AND EXISTS (
    SELECT FROM headwater.log WHERE key = '{JOURNAL_KEY}' AND term = %(number)s AND nonce = %(nonce)s
)
"""
_END_OTHERS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
    AND application_name LIKE 'headwater primary %'
    AND split_part(application_name, ' ', 3) <> split_part(current_setting('application_name'), ' ', 3)
"""
IDENTIFIER = (
    "(SELECT system_identifier || '/' || pg_database.oid FROM pg_control_system(), pg_database"
    " WHERE datname = current_database())"
)
"""The ID of the database: that of its cluster, and its own. A logical restore gets another one, in the same cluster
too, and so does a database after pg_upgrade; a standby has the same one."""
WAITED_FOR = (
    "(CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN ''"
    " ELSE current_setting('synchronous_standby_names') END)"
)
"""The configured standbys that a commit of this session waits for; empty if none."""
STANDBY_NAME = """(?:[A-Za-z_][A-Za-z0-9_$]*|[0-9]+|"(?:[ !#-~]|"")+")"""
"""The name of a standby, as in PostgreSQL's `syncrep_scanner.l`. Names of standbys are ASCII only."""
_NAMED = f"""
btrim(current_setting('synchronous_standby_names'), E' \\t\\n\\r\\f\\v') AS given,
LATERAL regexp_match(
    given, '^(?:(?:[Aa][Nn][Yy]|[Ff][Ii][Rr][Ss][Tt])[[:space:]]+)?0*([0-9]+)[[:space:]]*[(](.*)[)]$'
) AS parts,
LATERAL (SELECT coalesce(parts[1], '1'), coalesce(parts[2], given)) AS read (waited_for, list),
LATERAL (
    SELECT count(*), count(DISTINCT name), bool_or(name = '*')
    FROM regexp_matches(list, '{STANDBY_NAME}', 'g') AS found, LATERAL (
        SELECT lower(CASE left(found[1], 1) WHEN '"' THEN
            replace(substr(found[1], 2, length(found[1]) - 2), '""', '"') ELSE found[1] END)
    ) AS plain (name)
) AS names (all_of_them, different, has_any)
"""
VOUCHES = f"""(SELECT
    coalesce(current_setting('synchronous_commit') NOT IN ('off', 'local')
        AND list ~ '^[[:space:]]*{STANDBY_NAME}([[:space:]]*,[[:space:]]*{STANDBY_NAME})*[[:space:]]*$'
        AND all_of_them::text = waited_for AND all_of_them = different AND NOT has_any, false)
    FROM {_NAMED})"""
"""Whether each commit waits for every named standby, so that any of them has it when it is promoted.

`synchronous_standby_names` is parsed by PostgreSQL's grammar (`syncrep_gram.y`): one name, `FIRST n` or `ANY n` of n
names. A name that occurs twice (in any case) and `*` match several standbys, and one of them is enough. Such
settings, and settings that cannot be parsed, give false.
"""
NEWEST = f"(SELECT term FROM headwater.log WHERE key = '{JOURNAL_KEY}')"
"""The newest term that may have commits. The journal's head is the first to be fenced."""
_NEVER = f"(lease.number = 0 AND {NEWEST} = 0)"
UNCHANGED = f"(lease.timeline = {TIMELINE} AND lease.identifier IN ('', {IDENTIFIER}))"
_DECLARED = f"""(lease.identifier IN ('', {IDENTIFIER}) AND (
    SELECT promotion = 'managed' OR promotion = 'waited-for' AND lease.is_waited_for FROM headwater.home))"""
"""Whether the owner's declaration about promoted standbys covers this database, and nothing contradicts it."""
_PROMISED = "(SELECT promotion = 'waited-for' FROM headwater.home)"
REFILLED = "refilled"
"""Replaces the cluster's ID in the lease after a refill, so that each member compares its copy again."""
_WEAKENED = f"""(lease.is_waited_for AND {_PROMISED} AND ({UNCHANGED} OR lease.identifier = '{REFILLED}')
    AND NOT {VOUCHES})"""
"""Whether commits waited for all named standbys, as the owner declared, but no longer would. A standby promoted later
may not know this, so no term begins until the owner changes the declaration.
"""
_CONTRADICTION = f"""(SELECT string_agg(why, '; ' ORDER BY why) FROM (
    SELECT format('%%s has seen term %%s, but the newest here is %%s', name, greatest(seen, held), lease.number)
    FROM headwater.member WHERE greatest(seen, held) > lease.number
    UNION SELECT format('%%s has seen a different term %%s than this database', name, seen)
    FROM headwater.member JOIN headwater.log ON key = '{JOURNAL_KEY}' AND seen = term AND seen_nonce <> nonce
    UNION SELECT format('%%s is ahead: %%s', name, ahead) FROM headwater.member WHERE ahead <> ''
    UNION SELECT format('{JOURNAL_KEY} has term %%s, but the newest here is %%s', {NEWEST}, lease.number)
    WHERE {NEWEST} > lease.number
) AS found (why))"""
"""Evidence that the database lost events; NULL if there is none."""
_MISSING = f"""(SELECT string_agg(why, '; ' ORDER BY why) FROM (
    SELECT format('%%s has not compared its copy with this database', CASE WHEN EXISTS (
        SELECT FROM headwater.member AS other WHERE other.name = member.name AND other.id <> member.id)
        THEN name || ' (an earlier copy)' ELSE name END)
    FROM headwater.member WHERE timeline <> {TIMELINE} OR identifier <> {IDENTIFIER}
    UNION SELECT format('no known copy contains all of term %%s, the last one', {NEWEST}) WHERE NOT EXISTS (
        SELECT FROM headwater.member
        JOIN headwater.log ON key = '{JOURNAL_KEY}' AND held = term AND held_nonce = nonce)
) AS found (why))"""
"""What is missing for a proof that the database is complete; NULL if it is proved."""
_BELIEVED = f"""(went_back = '' AND {_CONTRADICTION} IS NULL
    AND ({_NEVER} OR {UNCHANGED} OR {_DECLARED} OR {_MISSING} IS NULL))"""
"""Whether the database has all events committed to this home, as far as is known.

Each primary writes each commit to its copy before it answers. So a changed database (another timeline or cluster ID) is
complete if every copy was compared with it, none is ahead, and one of them has all of the newest term.
"""

_ASKS = f"""EXISTS (SELECT FROM headwater.member WHERE id = %(member)s
    AND ({_NEVER} OR {UNCHANGED} OR timeline = {TIMELINE} AND identifier = {IDENTIFIER}))"""
"""Whether the requesting copy is a member's, and was compared with the database if that changed. Before the comparison
the member's row may be older than the evidence in the copy.
"""


_CHANGED = """since = CASE WHEN nonce = %(nonce)s THEN since ELSE clock_timestamp() END, why = CASE
    WHEN nonce = %(nonce)s THEN why
    WHEN number = 0 THEN 'it is the first primary of this home'
    WHEN holder = '' THEN 'a command ended the previous term'
    WHEN until = 'epoch' THEN format('%%s released its lease', holder)
    WHEN until <= clock_timestamp() THEN format('%%s did not renew its lease', holder)
    ELSE format('a command took the lease from %%s', holder) END"""
"""Sets the time and the reason of the last change of the holder."""


class _Version(NamedTuple):
    """The expressions that differ between two versions of a home."""

    try_lease: str
    renew: str
    stands: str
    accept: str


def _of_version(
    *, believed: str, unchanged: str, flag: str, identifier: str, member: str, why: str, waited_for: str, weakened: str,
    changed: str, accept: str,
) -> _Version:  # fmt: skip
    return _Version(
        f"""
UPDATE headwater.lease SET holder = %(server)s, addresses = %(addresses)s, nonce = %(nonce)s,
    number = CASE WHEN nonce = %(nonce)s THEN number ELSE number + 1 END,
    until = clock_timestamp() + %(length_s)s * interval '1 s', timeline = {TIMELINE}, {identifier}
    {flag} = {VOUCHES}
WHERE {believed} AND NOT {weakened} AND {member} AND (%(is_forced)s OR nonce = %(nonce)s OR until <= clock_timestamp()
    OR until > clock_timestamp() + %(length_s)s * interval '1 s')
RETURNING number, timeline
""",
        f"""
UPDATE headwater.lease SET until = clock_timestamp() + %(length_s)s * interval '1 s',
    {flag} = ({flag} OR %(was_synchronous)s) AND {VOUCHES}
WHERE number = %(number)s AND nonce = %(nonce)s AND went_back = '' AND {unchanged} AND NOT {weakened}
RETURNING {VOUCHES}
""",
        f"""
SELECT holder, addresses, number, nonce, greatest(extract(epoch FROM until - clock_timestamp()), 0)::float8,
    {believed} AND NOT {weakened}, went_back, extract(epoch FROM clock_timestamp())::float8, timeline, {why},
    {waited_for}, {weakened}, {changed}
FROM headwater.lease
""",
        f"""
UPDATE headwater.lease SET went_back = '', timeline = {TIMELINE},
    until = clock_timestamp() + %(pause_s)s * interval '1 s', nonce = 0, holder = '', losses = losses + 1, {accept}
""",
    )


_VERSIONS = {
    1: _of_version(
        believed=f"(went_back = '' AND (timeline = 0 OR timeline = {TIMELINE} OR is_synchronous))",
        unchanged=f"timeline = {TIMELINE}",
        flag="is_synchronous",
        identifier="",
        member="true",
        why="CASE WHEN went_back = '' THEN 'a standby of the database was promoted, and may lack new events' END, NULL",
        waited_for="NULL::text",
        weakened="false",
        changed="NULL::float8, ''",
        accept="number = number + 1",
    ),
    2: _of_version(
        believed=_BELIEVED,
        unchanged=UNCHANGED,
        flag="is_waited_for",
        identifier=f"identifier = CASE WHEN identifier = '' THEN '' ELSE {IDENTIFIER} END, {_CHANGED},",
        member=f"(%(member)s::text IS NULL OR {_ASKS})",
        why=f"{_CONTRADICTION}, CASE WHEN NOT {_BELIEVED} THEN {_MISSING} END",
        waited_for=f"CASE WHEN {_PROMISED} THEN {WAITED_FOR} END",
        weakened=_WEAKENED,
        changed="extract(epoch FROM nullif(since, 'epoch'))::float8, why",
        accept=f"identifier = {IDENTIFIER}, number = 1 + greatest(number, {NEWEST}, "
        "(SELECT max(greatest(seen, held)) FROM headwater.member))",
    ),
}
_VERSION = "SELECT version FROM headwater.home"
_newest: WeakSet[Connection] = WeakSet()
"""Connections to homes of the newest version that this server supports."""
_JOURNAL_TERM = f"SELECT term, nonce FROM headwater.log WHERE key = '{JOURNAL_KEY}'"
_RELEASE_LEASE = "UPDATE headwater.lease SET until = 'epoch', nonce = 0 WHERE number = %s AND nonce = %s"
_END_TERM = """
WITH ended AS (
    UPDATE headwater.lease SET number = number + 1, nonce = 0, holder = '' RETURNING number
)
UPDATE headwater.log SET term = ended.number, nonce = 0 FROM ended
"""
_MARK = "UPDATE headwater.lease SET went_back = %s WHERE went_back = ''"
_KNOWS_CLUSTER = "SELECT identifier <> '' FROM headwater.lease"
_KNOW_CLUSTER = f"UPDATE headwater.lease SET identifier = {IDENTIFIER} WHERE identifier = ''"


class LeaseStanding(NamedTuple):
    """The state of the lease in the home."""

    holder: str
    """The name of the last holder; empty if there never was one."""
    addresses: Mapping[str, str]
    """That server's addresses for clients, by protocol."""
    term: Term
    remaining_s: float
    """Seconds until another server can get the lease; 0 if it is free."""
    is_vouched: bool
    """Whether the database has all events committed to this home, as far as is known. Otherwise it grants no lease."""
    went_back: str
    """What a server found missing in the home, or the mark of a command; empty if there is none."""
    clock_s: float
    """The home's clock, in s since 1970."""
    timeline: int
    """The home's timeline when the lease was last granted."""
    contradiction: str | None = None
    """Evidence that the home lost events; None if there is none."""
    missing: str | None = None
    """What is missing for a proof that the home is complete; None if nothing, or if no proof is needed."""
    waited_for: str | None = None
    """The standbys that commits wait for now, if the owner declared that they wait; None if they may change."""
    is_weakened: bool = False
    """Whether commits waited for all named standbys, as declared, but no longer would."""
    since: float | None = None
    """When the holder got the lease, in s since 1970; None if no server has yet, or for a home of version 1."""
    why: str = ""
    """Why the holder became the primary; empty as above."""
    round_trip_s: float = 0.0
    """The round trip of this query in seconds."""
    off_s: float = 0.0
    """This machine's time of day minus the home's, if the home read its clock in the middle of the round trip."""

    @property
    def obstacle(self) -> str:
        """Why the home grants no lease; empty if `is_vouched`."""
        if self.is_weakened:
            return (
                "commits no longer wait for every named standby: synchronous_standby_names is now "
                f"{self.waited_for!r} (treated as empty if synchronous_commit is local); {REMEDY}"
            )
        return "" if self.is_vouched else self.went_back or self.contradiction or self.missing or ""

    @property
    def may_be_proved(self) -> bool:
        """Whether the home may grant leases again once copies are compared, since no loss is known."""
        return not (self.is_vouched or self.is_weakened or self.went_back or self.contradiction)


class Renewal(NamedTuple):
    """The home's answer to a renewal of its lease."""

    is_given: bool
    """False if another server has the lease, or the home changed."""
    standing: LeaseStanding
    """The state of the lease after the renewal."""


class Granted(NamedTuple):
    """A granted lease, and the timeline on which its holder writes."""

    term: Term
    timeline: int
    waited_for: str | None = None
    """The standbys that each commit must wait for, as configured when it was granted; None if they may change."""


def try_lease(
    connection: Connection,
    server: str,
    addresses: Mapping[str, str],
    nonce: int,
    length_s: float,
    *,
    member: str | None,
    is_forced: bool,
) -> Granted | None:
    """See `PostgresHome.try_lease`. Raises psycopg.Error, as all functions below do."""
    given = {
        "server": server,
        "addresses": msgspec.json.encode(addresses).decode(),
        "nonce": nonce,
        "length_s": length_s,
        "member": member,
        "is_forced": is_forced,
    }
    row, found = _changed(connection, _at(connection).try_lease, given)
    if row is None or found is None or found.is_weakened:
        return None
    return Granted(Term(row[0], nonce), row[1], found.waited_for)


def renew_lease(
    connection: Connection, term: Term, length_s: float, was_synchronous: bool
) -> tuple[bool | None, LeaseStanding | None]:
    """Extend the lease to `length_s` from now. Returns whether commits wait for a standby, and `standing`.

    The first is None if another server has the lease or the home changed. `was_synchronous`: the first result of the
    last renewal.
    """
    given = {"length_s": length_s, "was_synchronous": was_synchronous, **term._asdict()}
    row, found = _changed(connection, _at(connection).renew, given)
    return None if row is None else bool(row[0]), found


def release_lease(connection: Connection, term: Term) -> None:
    """Release the lease, unless it is of another term."""
    connection.execute(_RELEASE_LEASE, term)


def standing(connection: Connection) -> LeaseStanding | None:
    """The state of the lease; None if the table is empty."""
    stands = _at(connection).stands
    return _timed(lambda: connection.execute(stands, {}).fetchone())


def _changed(
    connection: Connection, change: str, given: Mapping[str, Any]
) -> tuple[tuple[Any, ...] | None, LeaseStanding | None]:
    """The row that a change of the lease returns (None if there was no change), and `standing`, in one round trip.

    The two are separate statements, because the declaration may change while the first one waits for a lock.
    """
    known = _at(connection)
    row: tuple[Any, ...] | None = None

    def asked() -> tuple[Any, ...] | None:
        nonlocal row
        asking = _together(connection, (change, known.stands), given)
        asking.set_result(0)
        row = asking.fetchone()
        asking.set_result(-1)
        return asking.fetchone()

    found = _timed(asked)
    return row, found


def _together(connection: Connection, statements: Sequence[str], given: Mapping[str, Any]) -> Cursor:
    """Execute statements in one round trip and one transaction, each with a separate snapshot.

    The cursor has the result of the last one. They are sent as one message, so that a client that is suspended in
    between holds no lock.
    """
    asking: Cursor = load_driver().ClientCursor(connection)
    asking.execute(";".join(statements), given)
    asking.set_result(-1)
    return asking


def _timed(ask: Callable[[], tuple[Any, ...] | None]) -> LeaseStanding | None:
    day, before = time.time(), time.monotonic()
    row = ask()
    round_trip_s = time.monotonic() - before
    if row is None:
        return None
    holder, addresses, number, nonce, *others = row
    by_protocol = json_decoder(dict[str, str]).decode(addresses)
    found = LeaseStanding(holder, by_protocol, Term(number, nonce), *others)
    return found._replace(round_trip_s=round_trip_s, off_s=day + round_trip_s / 2 - found.clock_s)


def is_unchanged(connection: Connection) -> bool:
    """Whether the home still writes the history in which the lease was last granted. A term ends with its history."""
    return connection.execute(f"SELECT {UNCHANGED} FROM headwater.lease").fetchone() == (True,)


def end_term(connection: Connection) -> None:
    """End the term: no server appends until one takes over after the last primary's lease has expired."""
    connection.execute(_END_TERM)


def mark(connection: Connection, what: str) -> None:
    """Mark the home as lacking events: it grants no lease until `accept`."""
    connection.execute(_MARK, (what,))


def accept(connection: Connection, pause_s: float) -> None:
    """Accept the present history although it lacks events. No server gets the lease for `pause_s`."""
    connection.execute(_at(connection).accept, {"pause_s": pause_s})


def identifier(connection: Connection) -> str:
    """The ID of the database, with that of its cluster."""
    [[found]] = connection.execute(f"SELECT {IDENTIFIER}").fetchall()
    return str(found)


def waited_for(connection: Connection) -> str:
    """The standbys that a commit of this session waits for, as configured now."""
    [[found]] = connection.execute(f"SELECT {WAITED_FOR}").fetchall()
    return str(found)


def knows_cluster(connection: Connection) -> bool:
    """Whether the lease has the ID of its cluster. A home upgraded from version 1 gets it later."""
    return has_members(connection) and connection.execute(_KNOWS_CLUSTER).fetchone() == (True,)


def know_cluster(connection: Connection) -> None:
    """Store the ID of the cluster in the lease."""
    if has_members(connection):
        connection.execute(_KNOW_CLUSTER)


def has_members(connection: Connection) -> bool:
    """Whether the home has members, as of version 2."""
    return version(connection) > 1


def version(connection: Connection) -> int:
    """The format of the home. It is read until it is the newest, since `home upgrade` changes it while servers run."""
    newest = max(_VERSIONS)
    if connection in _newest:
        return newest
    [[found]] = connection.execute(_VERSION).fetchall()
    if found >= newest:
        _newest.add(connection)
    return int(found)


def _at(connection: Connection) -> _Version:
    return _VERSIONS[min(version(connection), max(_VERSIONS))]


def losses(connection: Connection) -> int:
    """The number of accepted losses."""
    row = connection.execute("SELECT losses FROM headwater.lease").fetchone()
    return 0 if row is None else int(row[0])


def end_sessions(connection: Connection) -> None:
    """Terminate the sessions of other primaries, if this role has the right to."""
    connection.execute(_END_OTHERS)


def fence_journal(connection: Connection, granted: Granted) -> bool:
    """Write that term into the journal's head, unless that has a newer one. Returns whether it has this term now."""
    return _fence(connection, _FENCE_JOURNAL, granted).set_result(1).rowcount > 0


def fence_logs(connection: Connection, granted: Granted) -> bool:
    """Write that term into all older heads, if the journal has it. Returns whether the journal has it."""
    return _fence(connection, _FENCE_LOGS, granted).fetchone() == granted.term


def _fence(connection: Connection, fence: str, granted: Granted) -> Cursor:
    """Set a fence and confirm it in any case: the wait for standbys of an earlier attempt may have been cut short."""
    return _together(connection, (CONFIRM, fence, _JOURNAL_TERM), _of(granted))


def _of(granted: Granted) -> dict[str, Any]:
    (number, nonce), timeline, _ = granted
    return {"number": number, "nonce": nonce, "timeline": timeline}
