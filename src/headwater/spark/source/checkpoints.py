"""Reads the progress of a query from its checkpoint. It is only used for display: Spark alone decides where the query
resumes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..archive.steps import events_left
from ..pipeline.run import Run
from .options import stream_options
from .positions import OffsetUnreadable, decode_offset, extents, start_after


def to_do(run: Run, source: Mapping[str, str]) -> int:
    """How many events the query of that source still has to process.

    Raises InvalidOption, LogNotFound, and the errors of BulkClient.
    """
    options = stream_options(source)
    reached = reached_in(run.checkpoint)
    with run.server.client() as client:
        there = extents(client, options)
        after = {
            log: reached[log] if log in reached else start_after(client, options, log, extent, None)
            for log, extent in there.items()
        }
        return sum(events_left(client, log, after[log], extent) for log, extent in there.items())


def reached_in(checkpoint: str | None) -> dict[str, int]:
    """The number that the newest finished batch reached in each log; empty if it cannot be read from here."""
    if (directory := _directory(checkpoint)) is None:
        return {}
    done = [int(path.name) for path in directory.glob("commits/*") if path.name.isdigit()]
    found: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError, OffsetUnreadable):
        lines = (directory / "offsets" / str(max(done))).read_text(encoding="utf-8").splitlines()
        found = {log: consumed.position for log, consumed in decode_offset(json.loads(lines[-1])).items()}
    return found


def _directory(checkpoint: str | None) -> Path | None:
    parts = urlsplit(checkpoint or "")
    if not parts.path or parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path) if parts.scheme else checkpoint or "")
