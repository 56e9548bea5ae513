"""The lease and the term of a home in PostgreSQL, as statements on one connection.

The lease is a row, given by the clock of the database alone. A term is in the row of each log's head, where commits
look: putting it there is a fence. Who runs these, and on which connection, is `home`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...formats.decoders import json_decoder
from ...storage.frames.frame_log import Term
from ...storage.home.port import JOURNAL_KEY

if TYPE_CHECKING:
    from .connections import Connection

TIMELINE = "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer"
"""Which history the database writes: another one since a standby was promoted, or a backup restored."""
_ON_TIMELINE = f"{TIMELINE} = %(timeline)s"
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
_VOUCHED = f"(went_back = '' AND (timeline = 0 OR timeline = {TIMELINE} OR is_synchronous))"
SYNCHRONOUS = (
    "(current_setting('synchronous_standby_names') <> ''"
    " AND current_setting('synchronous_commit') NOT IN ('off', 'local'))"
)
"""Whether a standby is waited for at each commit."""
_NAME = """(?:[A-Za-z_][A-Za-z0-9_$]*|[0-9]+|"(?:[ !#-~]|"")+")"""
"""The name of a standby, as `syncrep_scanner.l` of PostgreSQL has it; in ASCII, which is all that a standby may use."""
_NAMED = f"""
btrim(current_setting('synchronous_standby_names'), E' \\t\\n\\r\\f\\v') AS given,
LATERAL regexp_match(
    given, '^(?:(?:[Aa][Nn][Yy]|[Ff][Ii][Rr][Ss][Tt])[[:space:]]+)?0*([0-9]+)[[:space:]]*[(](.*)[)]$'
) AS parts,
LATERAL (SELECT coalesce(parts[1], '1'), coalesce(parts[2], given)) AS read (waited_for, list),
LATERAL (
    SELECT count(*), count(DISTINCT name), bool_or(name = '*')
    FROM regexp_matches(list, '{_NAME}', 'g') AS found, LATERAL (
        SELECT lower(CASE left(found[1], 1) WHEN '"' THEN
            replace(substr(found[1], 2, length(found[1]) - 2), '""', '"') ELSE found[1] END)
    ) AS plain (name)
) AS names (all_of_them, different, has_any)
"""
VOUCHES = f"""(SELECT
    coalesce(current_setting('synchronous_commit') NOT IN ('off', 'local')
        AND list ~ '^[[:space:]]*{_NAME}([[:space:]]*,[[:space:]]*{_NAME})*[[:space:]]*$'
        AND all_of_them::text = waited_for AND all_of_them = different AND NOT has_any, false)
    FROM {_NAMED})"""
"""Whether each commit waits for every standby that is named, so that any of these has it when it is promoted.

`synchronous_standby_names` is read by the grammar of PostgreSQL (`syncrep_gram.y`): one name, `FIRST n` or `ANY n` of n
names. A name that is there twice, in whatever case, and `*` stand for several standbys, and one of them suffices. A
setting that is not understood does not vouch.
"""
_TRY_LEASE = f"""
UPDATE headwater.lease SET holder = %(server)s, addresses = %(addresses)s, nonce = %(nonce)s,
    number = CASE WHEN nonce = %(nonce)s THEN number ELSE number + 1 END,
    until = clock_timestamp() + %(length_s)s * interval '1 s', timeline = {TIMELINE},
    is_synchronous = {VOUCHES}
WHERE {_VOUCHED} AND (%(is_forced)s OR nonce = %(nonce)s OR until <= clock_timestamp()
    OR until > clock_timestamp() + %(length_s)s * interval '1 s')
RETURNING number, timeline
"""
_RENEW_LEASE = f"""
UPDATE headwater.lease SET until = clock_timestamp() + %s * interval '1 s',
    is_synchronous = (is_synchronous OR %s) AND {VOUCHES}
WHERE number = %s AND nonce = %s AND went_back = '' AND timeline = {TIMELINE}
RETURNING {VOUCHES}
"""
_LEASE_STANDS = f"""
SELECT holder, addresses, number, nonce, greatest(extract(epoch FROM until - clock_timestamp()), 0)::float8,
    {_VOUCHED}, went_back, extract(epoch FROM clock_timestamp())::float8, timeline
FROM headwater.lease
"""
_RELEASE_LEASE = "UPDATE headwater.lease SET until = 'epoch', nonce = 0 WHERE number = %s AND nonce = %s"
_MARK = "UPDATE headwater.lease SET went_back = %s WHERE went_back = ''"
_ACCEPT = f"""
UPDATE headwater.lease SET went_back = '', timeline = {TIMELINE}, until = clock_timestamp() + %s * interval '1 s',
    number = number + 1, nonce = 0, holder = '', losses = losses + %s
"""
_IDENTIFIER = "SELECT system_identifier::text FROM pg_control_system()"


class LeaseStanding(NamedTuple):
    """Who is the primary of a home, as the home has it."""

    holder: str
    """The name of the server that had it last; empty if none ever did."""
    addresses: Mapping[str, str]
    """Where that server's clients reach it, by protocol."""
    term: Term
    remaining_s: float
    """For so long nobody else gets it; 0: it is free."""
    is_vouched: bool
    """Whether the database writes the history that it wrote when the lease was given last; else nobody gets it."""
    went_back: str
    """What a server found missing in the home; empty if none did."""
    clock_s: float
    """What the home's clock shows, in s since 1970."""
    timeline: int
    """Which history the home wrote when the lease was given last."""


class Granted(NamedTuple):
    """A lease that was given, and the history that its holder writes."""

    term: Term
    timeline: int


def try_lease(
    connection: Connection, server: str, addresses: Mapping[str, str], nonce: int, length_s: float, *, is_forced: bool
) -> Granted | None:
    """See `PostgresHome.try_lease`. Raises psycopg.Error, as all that follow do."""
    given = {
        "server": server,
        "addresses": msgspec.json.encode(addresses).decode(),
        "nonce": nonce,
        "length_s": length_s,
        "is_forced": is_forced,
    }
    row = connection.execute(_TRY_LEASE, given).fetchone()
    return None if row is None else Granted(Term(row[0], nonce), row[1])


def renew_lease(connection: Connection, term: Term, length_s: float, was_synchronous: bool) -> bool | None:
    """Have it for that long from now on; answers whether a standby is waited for. None: it is another's, or the home
    changed. `was_synchronous`: one was at the last renewal.
    """
    row = connection.execute(_RENEW_LEASE, (length_s, was_synchronous, *term)).fetchone()
    return None if row is None else bool(row[0])


def release_lease(connection: Connection, term: Term) -> None:
    """Whoever wants it may have it at once. One of another term stays."""
    connection.execute(_RELEASE_LEASE, term)


def standing(connection: Connection) -> LeaseStanding | None:
    """Who has it; None: the table is empty."""
    row = connection.execute(_LEASE_STANDS).fetchone()
    if row is None:
        return None
    holder, addresses, number, nonce, *others = row
    return LeaseStanding(holder, json_decoder(dict[str, str]).decode(addresses), Term(number, nonce), *others)


def mark(connection: Connection, what: str) -> None:
    """The home lacks what it had: it gives no lease until `accept`."""
    connection.execute(_MARK, (what,))


def accept(connection: Connection, pause_s: float, *, is_loss: bool) -> None:
    """Vouch for the history that it has now; no server gets the lease for that long. `is_loss`: count it as one."""
    connection.execute(_ACCEPT, (pause_s, int(is_loss)))


def identifier(connection: Connection) -> str:
    """The database cluster that this is: another one after a logical restore."""
    row = connection.execute(_IDENTIFIER).fetchone()
    assert row is not None
    return str(row[0])


def losses(connection: Connection) -> int:
    """How often that was done."""
    row = connection.execute("SELECT losses FROM headwater.lease").fetchone()
    return 0 if row is None else int(row[0])


def end_sessions(connection: Connection) -> None:
    """End those of other primaries, as far as the database lets this role."""
    connection.execute(_END_OTHERS)


def fence_journal(connection: Connection, granted: Granted) -> int:
    """Put that term into the head of the journal, if there is no newer one; answers how many heads have it."""
    return connection.execute(_FENCE_JOURNAL, _of(granted)).rowcount


def fence_logs(connection: Connection, granted: Granted) -> int:
    """Put that term into all other heads that have an older one, if the journal has it; answers how many that were."""
    return connection.execute(_FENCE_LOGS, _of(granted)).rowcount


def _of(granted: Granted) -> dict[str, Any]:
    (number, nonce), timeline = granted
    return {"number": number, "nonce": nonce, "timeline": timeline}
