"""The sizes of a home's tables, their dead rows, and the oldest transaction, which keeps vacuum from removing these.

PostgreSQL keeps each changed or deleted row as long as an older transaction may read it. Meanwhile trimming frees no
space, and each commit reads more rows to find the newest.
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
"""For rows kept by a standby (its walsender or a slot) the database has no time. Only members of pg_read_all_stats see
the transactions and walsenders of other roles.
"""


class Growth(NamedTuple):
    """Sizes and dead rows at the last query."""

    sizes: Mapping[str, int]
    """Bytes of each growing table with its indexes: frames, heads (`log`), batches and postings."""
    dead_rows: Mapping[str, int]
    """Estimated dead rows of each table, which take space until the next vacuum."""
    snapshot_s: float
    """Age in seconds of the oldest visible transaction that keeps dead rows; 0 if there is none."""
    snapshot_transactions: int
    """The number of transactions since the oldest one kept, including those that a standby or a slot keeps."""


def growth(connection: Connection) -> Growth:
    """Query it. Raises psycopg.Error."""
    rows = connection.execute(_TABLES).fetchall()
    [oldest] = connection.execute(_OLDEST).fetchall()
    return Growth({name: size for name, size, _ in rows}, {name: dead for name, _, dead in rows}, *oldest)
