"""`python -m tests.power.watched COMMAND ...`: `headwater`, with segments and appends so small that much happens."""

from __future__ import annotations

import socket
import sqlite3
from typing import Any

from headwater.cli.main import main
from headwater.formats.arrow import events
from headwater.server.bulk import supervisor
from headwater.storage import engine
from headwater.storage.catalog import location
from headwater.storage.segments import segment_log
from headwater.storage.staging import commit, segments

SEGMENT_BYTES = 96 * 1024
APPEND_ROWS = 15
"""So few rows of a staged batch are one append: what is larger is committed by way of a manifest."""
FRAME_ROWS, SEGMENT_ROWS = 4, 8
"""Rows that are staged more than that at a time become segments, of two frames and of one."""
CHECKPOINT_PAGES = 40
"""So many pages of the state wait beside it before they are brought into it; SQLite's own number is 1,000."""


def be_small() -> None:
    """Have segments roll, be sealed and be dropped within a second."""
    segment_log.SEGMENT_BYTES_MIN = segment_log.SEGMENT_BYTES_MAX = SEGMENT_BYTES
    events.APPEND_EVENTS_MAX = APPEND_ROWS
    segments.FRAME_EVENTS_MAX, segments.STAGED_SEGMENT_EVENTS_MAX = FRAME_ROWS, SEGMENT_ROWS
    commit.ADOPTED_BYTES_MIN = 1
    supervisor.PROGRAM = f"from tests.power.watched import be_small; be_small(); {supervisor.PROGRAM}"
    engine.MAINTENANCE_INTERVAL_S, engine.RETENTION_INTERVAL_S = 0.1, 0.4


def be_alone() -> None:
    """Serve a directory as if no other process of this machine did: others look at copies of the same one."""
    location._bound = lambda name: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def _often_checkpointed(*arguments: Any, **options: Any) -> sqlite3.Connection:
    connection = _connect(*arguments, **options)
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
    return connection


_connect = sqlite3.connect

if __name__ == "__main__":
    be_small()
    be_alone()
    sqlite3.connect = _often_checkpointed  # type: ignore[assignment]
    main()
