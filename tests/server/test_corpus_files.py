"""The corpus in files: an import puts into quarantine what the gate refuses, and stores the rest as it was."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from headwater.cli.export import WRITERS
from headwater.cli.import_rows import Quarantine, opened_file, rows_of
from headwater.client import append_all
from headwater.core import LogSettings, SequencedEvent
from headwater.formats.files.tabular import TableMapping
from headwater.storage.memory import MemoryLog

from .corpus.entries import ENTRIES, Entry


def _can_say(format: str, entry: Entry) -> bool:
    """Whether a file says it: tags in one text are none that is empty."""
    return format not in ("cloudevents", "csv") or entry.event.tags != ("",)


def _places(file: Path, format: str) -> list[str]:
    """Where each event is in the file."""
    if format == "csv":
        with file.open(newline="", encoding="utf-8") as text:
            rows = csv.reader(text)
            return [f"line {rows.line_num}" for _ in rows][1:]
    return [f"{'row' if format == 'parquet' else 'line'} {number}" for number in range(1, len(ENTRIES) + 1)]


@pytest.mark.parametrize("format", sorted(WRITERS))
def test_an_import_takes_and_refuses_the_same(tmp_path: Path, format: str) -> None:
    said = [entry for entry in ENTRIES if _can_say(format, entry)]
    file, quarantine, log = tmp_path / "odd", tmp_path / "bad.ndjson", MemoryLog(LogSettings())
    with file.open("wb") as out, WRITERS[format](out, "/logs/odd") as write:
        write([SequencedEvent(number, 0, 0, *entry.event) for number, entry in enumerate(said, 1)])
    with opened_file(file) as opened, quarantine.open("wb") as kept:
        put = Quarantine(kept, len(said))
        done = append_all(log, put.events(rows_of(opened, format, TableMapping("odd"))), on_refused=put.refused)
    refused = [place for place, entry in zip(_places(file, format), said, strict=False) if not entry.is_taken]
    assert sorted(json.loads(line)["place"] for line in quarantine.read_bytes().splitlines()) == sorted(refused)
    stored = [event.event for event in log.read()]
    assert stored == [entry.event for entry in said if entry.is_taken]
    assert (done.appended, put.rows) == (len(stored), len(refused))
