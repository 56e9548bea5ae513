"""Bounds of pipelines, and their steps: digits are a number, and a gap of 10^12 numbers takes no time. No session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.cli.main import run
from headwater.core.errors import InvalidInput
from headwater.core.local import LocalLog
from headwater.flight.client import BulkClient
from headwater.spark.archive.snapshot import Archive
from headwater.spark.archive.steps import Steps
from headwater.spark.pipelines import load
from headwater.storage import Engine
from headwater.storage.backup import backup, restore
from tests.flight.memory_backend import MemoryBackend, serving

from ..archives import archive
from ..conftest import T0, fill

GAP = 10**12


class Restored(NamedTuple):
    """A server, and its log."""

    url: str
    log: LocalLog


def planned(url: str, to: Path, *options: str) -> int:
    return run(["pipeline", "export", "--url", url, "--log", "orders", "--to", str(to), "--dry-run", *options])


@pytest.mark.parametrize("flag", ["--start", "--end"])
def test_digits_alone_are_a_number_and_one_above_the_head_is_refused_with_the_way_to_write_a_time(
    url: str, orders: LocalLog, tmp_path: Path, capfd: pytest.CaptureFixture[str], flag: str
) -> None:
    assert planned(url, tmp_path / "x", flag, str(T0)) != 0
    error = capfd.readouterr().err
    assert f"{flag}: got {T0}, but the head of log 'orders' is 100; for a time in milliseconds write ms:{T0}" in error


@pytest.mark.parametrize("end", [f"ms:{T0 + 50}", "2023-11-14T22:13:20.050Z"])
def test_a_time_is_iso_8601_or_milliseconds_that_say_so(
    url: str, orders: LocalLog, tmp_path: Path, capfd: pytest.CaptureFixture[str], end: str
) -> None:
    with BulkClient(url) as client:
        last = client.sequence_number_at("orders", T0 + 50) - 1
    assert planned(url, tmp_path / "x", "--end", end) == 0
    assert f"the events 1 to {last} of log" in capfd.readouterr().out


@pytest.mark.parametrize("given", ["yesterday", "ms:", "ms:1.5", "-1", "0x10", "20", "٢٠"])
def test_what_is_neither_is_refused_before_any_server_is_asked(given: str) -> None:
    options = load("export").options
    if given == "20":
        assert options(log="orders", to="x", start=given).start == given
        return
    with pytest.raises(
        InvalidInput, match=r"earliest, latest, a number, or a time such as .* or ms:1700000000000, got "
    ):
        options(log="orders", to="x", start=given)


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Restored]:
    """A server whose log was restored after 10 events, and has 10 more since: 1 to 10, and 10^12 + 1 to 10^12 + 10."""
    with Engine(tmp_path / "data", maintains=False, reserve_bytes=0) as engine:
        fill(engine.create("orders"), 10)
    backup(tmp_path / "data", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again")
    with Engine(tmp_path / "again", maintains=False, reserve_bytes=0) as engine:
        fill(engine.open("orders"), 10)
        with serving(MemoryBackend(engine)) as server:
            yield Restored(f"grpc://127.0.0.1:{server.port}", engine.open("orders"))


@pytest.mark.parametrize("is_archived", [False, True])
@pytest.mark.parametrize("events", [1, 4, 10, 15, 100])
def test_steps_go_over_the_gap_of_a_restored_log_at_once(
    restored: Restored, tmp_path: Path, events: int, is_archived: bool
) -> None:
    table = None
    if is_archived:
        archive(restored.log, tmp_path / "table", 1, 7)
        restored.log.trim(6)
        table = Archive(str(tmp_path / "table"))
    with BulkClient(restored.url) as client:
        extent = client.head("orders")
        steps = Steps(client, "orders", extent.incarnation, table)
        ends = [0]
        while ends[-1] < extent.head:
            ends.append(steps.end(ends[-1], extent.head, events))
        sizes = [steps.count(after, upto) for after, upto in pairwise(ends)]
    assert extent.head == GAP + 10
    assert all(sizes), ends
    assert len(sizes) <= 20 // events + 2
    if not is_archived:  # else the sizes of the first steps are those of the whole file
        assert sum(sizes) == 20 and max(sizes) <= events


@pytest.mark.usefixtures("own_session")
def test_a_restored_log_is_exported_whole_by_the_command(
    restored: Restored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    more = ("--log", "orders", "--to", "x", "--format", "ndjson", "--events-per-step", "4", "--progress", "lines")
    assert run(["pipeline", "export", "--url", restored.url, *more]) == 0
    manifest = json.loads((tmp_path / "x/_manifest.json").read_text())
    assert (manifest["events"], manifest["first"], manifest["last"]) == (20, 1, GAP + 10)
    lines = [line for file in sorted((tmp_path / "x").glob("*.ndjson")) for line in file.read_text().splitlines()]
    expected = [*range(1, 11), *range(GAP + 1, GAP + 11)]
    assert [json.loads(line)["sequence_number"] for line in lines] == expected
    assert "100 %" in capsys.readouterr().err
