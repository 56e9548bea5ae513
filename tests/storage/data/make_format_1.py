"""Makes `format-1/`, the kept data directory of format version 1, and `format-1.json`, what is to be found in it.

Run once per format version (`python -m tests.storage.data.make_format_1`), never again: the point of the directory is
that later code opens what earlier code wrote. What it has: tags, attributes, group keys, envelopes, partitions, sealed
segments, trimmed events with history, consumers, a deleted log, an unclean end, a clean one.

0.1.0 made it (commit 9d8feba6), and only that runs this: its messages of AMQP are none, which an append refuses today
(record 182). Storage keeps and copies such events, and that is what the directory shows.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from headwater.core import Encoding, Event, LogSettings, Query, SequencedEvent
from headwater.storage import Engine, StoredLog
from headwater.storage.maintenance.worker import IndexWorker, do
from headwater.storage.segments import segment_log

HERE = Path(__file__).parent
DIRECTORY, EXPECTED = HERE / "format-1", HERE / "format-1.json"
QUERIES = [{"types": ["T1"]}, {"tags": ["order:7"]}, {"tags": ["town"]}, {"types": ["T2", "Größe"], "tags": ["all"]}]
AFTERS = [0, 5, 40, 75, 119]


def main() -> None:
    """Write the directory and the expectation."""
    segment_log.SEGMENT_BYTES_MIN, segment_log.SEGMENT_BYTES_MAX = 8 * 1024, 8 * 1024
    IndexWorker.run = lambda self, job: do(job).problem  # type: ignore[method-assign]
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "data"
        clock = iter(range(1_700_000_000_000, 1_800_000_000_000, 1000))
        with Engine(source, maintains=False, reserve_bytes=0, clock=lambda: next(clock)) as engine:
            fill_orders(engine)
            fill_flights(engine)
            fill_again(engine)
            expected = {name: found_in(engine.open(name)) for name in engine.names()}
            engine.open("orders").close()  # cleanly; flights ends as a crash leaves it
            shutil.copytree(source, DIRECTORY)
    with closing(sqlite3.connect(DIRECTORY / "state.sqlite")) as state:
        state.execute("PRAGMA journal_mode = DELETE")  # one file
    for path in [DIRECTORY / "LOCK", *DIRECTORY.rglob("*.lock"), *DIRECTORY.rglob("*.tmp")]:
        path.unlink(missing_ok=True)
    for path in DIRECTORY.rglob("*.log"):
        shrink(path)
    EXPECTED.write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def fill_orders(engine: Engine) -> None:
    """Sealed segments, history, consumers."""
    log = engine.create("orders", LogSettings(partitions=3, retention_until_acknowledged=True, id_horizon=1000))
    for number in range(1, 121):
        tags = (f"order:{number % 10}", "all", *(("town:Zürich",) if number % 7 == 0 else ()))
        attributes = {"subject": f"s{number}", "time": "2013-01-01T00:00:00Z"} if number % 3 else {}
        kind = "Größe" if number % 11 == 0 else f"T{number % 4}"
        envelope = b"\x00Sp\xc0" if number % 5 == 0 else b""
        encoding = Encoding.AMQP if number % 9 == 0 else Encoding.DATA
        log.append([
            Event(kind, bytes([number]) * (number % 50), tags, f"id-{number}", "urn:a" if number % 2 else "",
                  attributes, f"key-{number % 4}" if number % 6 == 0 else "", envelope, encoding),
        ])  # fmt: skip
    log.append([Event("Batch", str(number).encode(), ("all",)) for number in range(30)], partition=2)
    engine.maintain()
    log.register_consumer("spark", "archiver", after=0)
    log.acknowledge("spark", "archiver", 70)
    log.register_consumer("futoin-user", "component", after=90)
    log.register_consumer("futoin-user", "component")
    engine.maintain()
    engine.maintain()


def fill_flights(engine: Engine) -> None:
    """One segment, no history kept."""
    log = engine.create("flights", LogSettings(keeps_history=False, event_bytes_max=4096))
    for number in range(1, 21):
        log.append([Event("Departed", b"{}", (f"tail:N{number % 3}", "carrier"), f"f-{number}")])
    log.trim(6)


def fill_again(engine: Engine) -> None:
    """A log of a name that was used before."""
    engine.create("again").append([Event("Old", id=str(number)) for number in range(9)])
    engine.delete("again")
    engine.create("again").append([Event("New", b"n", ("x:1",), "new")])


def found_in(log: StoredLog) -> dict[str, Any]:
    """Everything that a log answers, in JSON's terms."""
    info = log.info()
    return {
        "incarnation": info.incarnation,
        "head": info.head,
        "first_retained": info.first_retained,
        "known_from": log.known_from,
        "partition_events": list(info.partition_events),
        "partitions": info.settings.partitions,
        "consumers": [[each.owner, each.component, each.acknowledged, each.epoch] for each in log.consumers()],
        "events": list(map(as_json, log.read())),
        "matches": [[each.sequence_number for each in log.read(Query.where(**query))] for query in QUERIES],
        "conflicts": list(conflicts(log)),
    }


def conflicts(log: StoredLog) -> Iterator[int | None]:
    """What each query finds first after each of some numbers, over all that is known: trimmed events too."""
    for query in QUERIES:
        for after in AFTERS:
            low = max(after + 1, log.known_from)
            yield log._sequencer._judge._first_match(Query.where(**query), low, log.head())  # type: ignore[attr-defined]


def as_json(event: SequencedEvent) -> list[Any]:
    """An event as a list."""
    return [
        event.sequence_number, event.recorded_at, event.partition, event.type, event.data.hex(), list(event.tags),
        event.id, event.source, dict(event.attributes), event.group_key, event.envelope.hex(), int(event.encoding),
    ]  # fmt: skip


def shrink(path: Path) -> None:
    """Cut the zeros behind the last frame (none of these ends with zeros of its own): a segment may end there."""
    content = path.read_bytes().rstrip(b"\0")
    path.write_bytes(content + bytes(-len(content) % 8))


if __name__ == "__main__":
    main()
