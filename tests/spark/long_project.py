"""A projection that is killed again and again beside one that is made at once: they must be the same, byte for byte.

    python -m tests.spark.long_project --events 10000000 --kills 5

It starts a server of its own, and ends with a line of JSON: the number of events and entities, and events per second of
the run that was not killed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from headwater.flight.client import BulkClient
from headwater.spark.projection import dump
from headwater.spark.projection.errors import NotAProjection
from headwater.spark.projection.table import StateTable

from ..server.running import RunningServer
from .processes import kill, start, wait_for

APPEND = 50_000
WITH_FLIGHT = ("--flight-enabled", "true", "--flight-port", "0")


def project_twice(
    directory: Path,
    *,
    events: int,
    kills: int,
    entities: int,
    batch: int,
    buckets: int = 64,
    columns: str = "type,data",
    finish: Callable[[str, Path, int], float] | None = None,
) -> dict[str, object]:
    """Do it all in that directory; answers what it was like. Raises AssertionError where the tables differ.

    `finish` folds the rest of the log of the server at that URL into that table, in batches of that size, and answers
    the seconds; without it a command does.
    """
    with RunningServer("--data", "data", "--log", "orders", *WITH_FLIGHT, cwd=directory) as server:
        url = server.further_url("grpc")
        with BulkClient(url) as bulk:
            for first in range(1, events + 1, APPEND):
                bulk.append("orders", [events_from(first, min(APPEND, events + 1 - first), entities)])
        projecting = Projecting(directory, url, columns, buckets)
        for number in range(kills):
            target = (number + 1) * events // (kills + 1)
            projecting.kill_after("killed", target, batch)
        finish = finish or projecting.finish
        finish(url, directory / "killed", batch)
        seconds = finish(url, directory / "at-once", max(events, 1))
        dumps = {name: projecting.digest(name) for name in ("killed", "at-once")}
    assert dumps["killed"] == dumps["at-once"], dumps
    assert counted(directory / "at-once.ndjson") == expected(events, entities)
    digest, count = dumps["killed"]
    table = StateTable(directory / "killed")
    assert table.position == events, table.position
    return {
        "events": events, "kills": kills, "entities": count, "commits_when_killed": table.version,
        "sha256": digest, "seconds": round(seconds, 1), "events_per_s": round(events / seconds),
    }  # fmt: skip


class Projecting:
    """Runs of the pipeline on one log."""

    def __init__(self, directory: Path, url: str, columns: str, buckets: int) -> None:
        self.directory, self.output = directory, directory / "output.txt"
        self._common = ["-m", "headwater.spark.jobs", "project", "--log", "orders", "--tag", "order", "--fold",
                        "tests.spark.folds:totals", "--url", url, "--columns", columns, "--buckets", str(buckets),
                        "--once", "--progress", "json", "--master", "local[2]",
                        "--conf", "spark.driver.memory=1g"]  # fmt: skip

    def command(self, table: str, batch: int) -> Sequence[str]:
        """The arguments of a run."""
        return [*self._common, "--table", str(self.directory / table), "--events-per-batch", str(batch)]

    def position(self, table: str) -> int:
        """How far the table is."""
        try:
            return StateTable(self.directory / table).position
        except NotAProjection:
            return 0

    def kill_after(self, table: str, target: int, batch: int) -> None:
        """Start a run, and kill it at some instant after it has committed, or has come to the target."""
        before = self.position(table)
        process = start(self.command(table, batch), self.output)
        try:
            goal = max(before + 1, target - batch)
            wait_for(lambda: self.position(table) >= goal or process.poll() is not None, seconds=3600)
            time.sleep(random.uniform(0, 1.5))
        finally:
            kill(process)

    def finish(self, url: str, table: Path, batch: int) -> float:
        """Run it to the end of the log; answers the seconds that its batches took."""
        begun = self.output.stat().st_size if self.output.exists() else 0
        process = start(self.command(table.name, batch), self.output)
        try:
            assert process.wait(3600) == 0, self.output.read_text()
        finally:
            kill(process)
        lines = self.output.read_bytes()[begun:].decode().splitlines()
        done = [json.loads(line) for line in lines if line.startswith("{") and "batch_ms" in line]
        return sum(each["batch_ms"] for each in done) / 1000

    def digest(self, table: str) -> tuple[str, int]:
        """The hash of its dump, and how many entities there are."""
        file = self.directory / f"{table}.ndjson"
        with file.open("wb") as target:
            count = dump(self.directory / table, target)
        return hashlib.sha256(file.read_bytes()).hexdigest(), count


def events_from(first: int, count: int, entities: int) -> pa.RecordBatch:
    """Events whose orders take turns; every tenth has two of them, and some orders are closed for a while."""
    numbers = range(first, first + count)
    return pa.record_batch(
        {
            "type": pa.array(["Closed" if number % 97 == 0 else f"T{number % 5}" for number in numbers]),
            "data": pa.array([b'{"n": %d}' % number for number in numbers], pa.binary()),
            "tags": pa.array([tags_of(number, entities) for number in numbers], pa.list_(pa.string())),
            "id": pa.array([str(number) for number in numbers]),
        }
    )


def tags_of(number: int, entities: int) -> list[str]:
    """The tags of event n."""
    tags = [f"order:{number * 7919 % entities}", f"day:{number % 7}"]
    return [*tags, f"order:{number * 31 % entities}"] if number % 10 == 0 else tags


def expected(events: int, entities: int) -> dict[str, tuple[int, int]]:
    """How many events each entity has had since it had no state, and the last one: counted without the pipeline."""
    found: dict[str, tuple[int, int]] = {}
    for number in range(1, events + 1):
        for entity in {tag.removeprefix("order:") for tag in tags_of(number, entities) if tag.startswith("order:")}:
            if number % 97 == 0:
                found.pop(entity, None)
            else:
                found[entity] = (found.get(entity, (0, 0))[0] + 1, number)
    return found


def counted(dumped: Path) -> dict[str, tuple[int, int]]:
    """The same, as a dump says it."""
    with dumped.open("rb") as lines:
        rows = map(json.loads, lines)
        return {line["entity"]: (line["events"], line["sequence_number"]) for line in rows}


def main(arguments: Sequence[str]) -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.long_project")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--entities", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--buckets", type=int, default=64)
    parser.add_argument("--columns", default="type,data")
    given = vars(parser.parse_args(arguments))
    directory = Path(tempfile.mkdtemp(prefix="headwater-long-project-"))
    print(json.dumps(project_twice(directory, **given)))
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
