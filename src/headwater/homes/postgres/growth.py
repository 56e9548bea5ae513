"""What the tables of a home take, how much of that a vacuum has yet to free, and what keeps it from that.

PostgreSQL keeps each row that was changed or deleted as long as a transaction that began before may ask for it. Trimmed
frames free nothing meanwhile, and each commit looks at more rows to find the newest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .schema import Connection

_TABLES = """
SELECT relname, pg_total_relation_size(relid), n_dead_tup FROM pg_stat_user_tables
WHERE schemaname = 'headwater' AND relname IN ('frame', 'log', 'staged')
"""
_OLDEST = """
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - since)), 0)::float8, coalesce(max(age(xmin)), 0) FROM (
    SELECT xact_start, backend_xmin FROM pg_stat_activity
    WHERE coalesce(datname, current_database()) = current_database() AND pid <> pg_backend_pid()
        AND backend_xmin IS NOT NULL
    UNION ALL SELECT prepared, transaction FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL SELECT NULL, xmin FROM pg_replication_slots WHERE xmin IS NOT NULL
) AS keeping (since, xmin)
"""
"""Of what a standby keeps, by its walsender or a slot, the database knows no time. Transactions and walsenders of other
roles are shown to members of pg_read_all_stats alone."""


class Growth(NamedTuple):
    """What the database said of it when it was asked last."""

    sizes: Mapping[str, int]
    """The bytes of each table that grows, with its indexes: of frames, of heads (`log`), of batches and postings."""
    dead_rows: Mapping[str, int]
    """Rows of each that are of no more use, and take room until the next vacuum, about."""
    snapshot_s: float
    """The age of the oldest transaction that this role may see and that keeps such rows; 0 if there is none."""
    snapshot_transactions: int
    """How many transactions began since the oldest that is kept so, by a standby or a slot too."""


def growth(connection: Connection) -> Growth:
    """Ask for it. Raises psycopg.Error."""
    rows = connection.execute(_TABLES).fetchall()
    [oldest] = connection.execute(_OLDEST).fetchall()
    return Growth({name: size for name, size, _ in rows}, {name: dead for name, _, dead in rows}, *oldest)
