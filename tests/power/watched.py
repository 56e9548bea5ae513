"""`python -m tests.power.watched COMMAND ...`: `headwater`, with segments and appends so small that much happens."""

from __future__ import annotations

import sqlite3
from typing import Any

from headwater.formats import arrow_events
from headwater.server.cli import main
from headwater.storage import engine, segments

SEGMENT_BYTES = 96 * 1024
APPEND_ROWS = 15
"""So few rows of a staged batch are one append: what is larger is committed by way of a manifest."""
CHECKPOINT_PAGES = 40
"""So many pages of the state wait beside it before they are brought into it; SQLite's own number is 1,000."""


def be_small() -> None:
    """Have segments roll, be sealed and be dropped within a second."""
    segments.SEGMENT_BYTES_MIN = segments.SEGMENT_BYTES_MAX = SEGMENT_BYTES
    arrow_events.APPEND_EVENTS_MAX = APPEND_ROWS
    engine.MAINTENANCE_INTERVAL_S, engine.RETENTION_INTERVAL_S = 0.1, 0.4


def _often_checkpointed(*arguments: Any, **options: Any) -> sqlite3.Connection:
    connection = _connect(*arguments, **options)
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    return connection


_connect = sqlite3.connect

if __name__ == "__main__":
    be_small()
    sqlite3.connect = _often_checkpointed  # type: ignore[assignment]
    main()
