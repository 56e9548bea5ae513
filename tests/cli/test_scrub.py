"""`headwater scrub`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.server.running import RunningServer
from tests.storage.builders import engine, event

from headwater.cli.scrub import scrub
from headwater.storage.maintenance.file_proof import FileProver
from headwater.storage.maintenance.scrub import PLACE_NAME, DamagedFile, read_place
from headwater.storage.maintenance.worker import IndexWorker


def run(data: Path, *arguments: str) -> Result:
    return CliRunner().invoke(scrub, ["--data", str(data), *arguments])


def test_a_running_server_starts_the_pass(tmp_path: Path) -> None:
    with RunningServer("--data", "d", cwd=tmp_path) as server:
        asked = run(tmp_path / "d", "--now")
        assert asked.output == "the server starts a scrub pass within 1 s, but not within 60 s of its own start\n"
        assert server.terminate() == 0


def test_a_pass_that_was_asked_for_begins_and_what_it_finds_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover = FileProver()
    monkeypatch.setattr(IndexWorker, "prove", lambda self, file: prover.step(file))
    monkeypatch.setattr("headwater.storage.maintenance.scrub.SETTLED_S", 0.0)
    with engine(tmp_path / "d", scrub_ms=0) as one:
        one.create("orders").append([event()])
        one.scrub.step()
        assert not one.scrub.place.began_at
    assert "has not run yet" in run(tmp_path / "d").output
    assert (
        run(tmp_path / "d", "--now").output
        == "no server is running; the next one starts a scrub pass 0 s after its start\n"
    )
    with engine(tmp_path / "d", scrub_ms=0) as one:
        one.scrub.step()
        assert one.scrub.place.began_at
        one.scrub.place.damaged = [DamagedFile("logs/orders.0/log/1.log", "a bit flipped", 3, 7)]
        assert any("headwater scrub" in trouble for trouble in one.troubles())
        one.scrub.store()
    assert (tmp_path / "d" / PLACE_NAME).exists() and read_place(tmp_path / "d").damaged
    shown = run(tmp_path / "d")
    assert shown.exit_code == 5
    assert "orders.0/log/1.log: events 3 to 7 are damaged on the disk (a bit flipped); restore a backup" in shown.output
