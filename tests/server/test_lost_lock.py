"""A server whose LOCK is removed, or whose directory is moved away, acknowledges nothing more, says why, and ends."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from headwater.cli.main import UNAVAILABLE
from headwater.storage import Engine, check_directory
from tests.night import IS_NIGHT
from tests.server.running import SILENCE_S_MAX, RunningServer, headwater

ROUNDS = 20 if IS_NIGHT else 1
_CODE = (
    "import fcntl; from tests.storage.disks import without_directory_locks; fcntl.flock = without_directory_locks; "
    "from headwater.cli.main import main; main()"
)
WITHOUT_DIRECTORY_LOCKS = (sys.executable, "-c", _CODE)
"""`headwater` where the file system locks no directories."""


def appended(server: RunningServer, id: str) -> bool:
    """Whether that event was acknowledged."""
    body = json.dumps({"events": [{"type": "E", "id": id}]}).encode()
    try:
        return server.ask("/logs/orders/append", body)[0] == 200
    except OSError:  # it ends, or has ended
        return False


def test_a_second_server_is_refused_after_the_lock_was_removed_and_the_first_one_stopped(tmp_path: Path) -> None:
    data = tmp_path / "data"
    places = [tmp_path / "first", tmp_path / "second"]
    for place in places:
        place.mkdir()
    with RunningServer("--data", str(data), "--log", "orders", cwd=places[0]) as first:
        acknowledged = {f"a-{number}" for number in range(5) if appended(first, f"a-{number}")}
        assert len(acknowledged) == 5
        first.process.send_signal(signal.SIGSTOP)  # it notices nothing
        (data / "LOCK").unlink()
        refused = headwater("serve", "--data", str(data), "--log", "orders", cwd=places[1])
        assert refused.returncode == UNAVAILABLE
        assert f"{data}: in use by another process, although its LOCK is free" in refused.stderr
        first.process.send_signal(signal.SIGCONT)
        assert not appended(first, "a-5")
        assert first.process.wait(SILENCE_S_MAX) == UNAVAILABLE
        assert f"{data}/LOCK was " in first.errors and "level=error" in first.errors
        assert "find out what removed the file and start one server on the directory" in first.errors
        assert "maintenance failed; retrying" not in first.errors
        with RunningServer("--data", str(data), "--log", "orders", cwd=places[1]) as second:
            acknowledged |= {f"b-{number}" for number in range(40) if appended(second, f"b-{number}")}
            assert second.terminate() == 0
        with Engine(data, reserve_bytes=0) as engine:
            assert {each.id for each in engine.open("orders").read()} == acknowledged
        assert len(acknowledged) == 45
    assert check_directory(data).is_sound


@pytest.mark.timeout(20 * ROUNDS + 120)
def test_of_85_appends_to_two_servers_none_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    """LOCK is removed where directories have no locks: a second server starts, and both are appended to in turn."""
    for number in range(ROUNDS):
        data, places = tmp_path / f"data-{number}", [tmp_path / f"{number}-{server}" for server in ("first", "second")]
        for place in places:
            place.mkdir()
        arguments = ("--data", str(data), "--log", "orders")
        with RunningServer(*arguments, cwd=places[0], program=WITHOUT_DIRECTORY_LOCKS) as first:
            acknowledged = {f"a-{each}" for each in range(5) if appended(first, f"a-{each}")}
            (data / "LOCK").unlink()
            with RunningServer(*arguments, cwd=places[1], program=WITHOUT_DIRECTORY_LOCKS) as second:
                for each in range(40):
                    acknowledged |= {id for server, id in ((first, f"b-{each}"), (second, f"c-{each}"))
                                     if appended(server, id)}  # fmt: skip
                assert second.terminate() == 0
            assert first.process.wait(SILENCE_S_MAX) == UNAVAILABLE
        assert len(acknowledged) == 45, "the first one refuses all 40"
        assert check_directory(data).is_sound
        with Engine(data, reserve_bytes=0) as engine:
            assert sorted(each.id for each in engine.open("orders").read()) == sorted(acknowledged)


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "renamed"])
def test_a_server_whose_directory_is_gone_confirms_nothing(tmp_path: Path, is_deleted: bool) -> None:
    data = tmp_path / "data"
    with RunningServer("--data", str(data), "--log", "orders", cwd=tmp_path) as server:
        assert appended(server, "1")
        if is_deleted:
            shutil.rmtree(data)
        else:
            data.rename(tmp_path / "elsewhere")
        request = urllib.request.Request(f"{server.url}/logs/new", method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=SILENCE_S_MAX) as answer:
                status = answer.status
        except urllib.error.HTTPError as error:
            with error:
                status = error.code
        except OSError:  # it ends
            status = None
        assert status in (503, None)
        assert not appended(server, "2")
        assert server.process.wait(SILENCE_S_MAX) == UNAVAILABLE
        assert "was removed, or its directory was removed or renamed" in server.errors
        assert "maintenance failed; retrying" not in server.errors
    assert not data.exists()
    if not is_deleted:
        with Engine(tmp_path / "elsewhere", reserve_bytes=0) as engine:
            assert [each.id for each in engine.open("orders").read()] == ["1"]
