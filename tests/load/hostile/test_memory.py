"""What hostile peers may make a server hold has a ceiling: a load of each protocol by day, all of them by night."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.core.event import Event
from headwater.core.settings import LogSettings
from tests.night import night

from ..server import MortalServer
from . import memory
from .loads import DAILY, HUGE, LARGE, LOADS
from .memory import HOLD_S_MAX, MIB, Cage, Prepared, unkept
from .peers import Crowd

LARGE_BYTES = 1_000_000
"""Of one event: a push of FutoIn has so much at once, and comes again after half a minute alone."""


@pytest.mark.timeout(600)
def test_a_load_of_each_protocol_stays_within_the_budget_and_gives_back_what_it_took(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path)
    faults = {outcome.name: outcome.faults for outcome in prepared.run(DAILY) if outcome.faults}
    assert faults == {} and prepared.faults == [], prepared.faults


@night
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LOADS)
def test_each_hostile_load_stays_within_the_budget_and_gives_back_what_it_took(tmp_path: Path, name: str) -> None:
    prepared = Prepared(tmp_path)
    [outcome] = prepared.run([name])
    assert outcome.faults == () and prepared.faults == [], outcome.row()


def test_a_killed_process_and_memory_that_is_held_or_left_and_a_long_hold_would_be_noticed() -> None:
    assert unkept(0, 64 * MIB, 64 * MIB, 32 * MIB, HOLD_S_MAX) == []
    assert unkept(1, 65 * MIB, 64 * MIB, 33 * MIB, HOLD_S_MAX + 0.001) == [
        "the kernel ended 1 processes for want of memory",
        "65 MiB more were held, 64 are allowed",
        "33 MiB more are left after 10 s",
        "one hold took 151 ms of CPU",
    ]
    assert unkept(0, 0, 0, 0, float("nan")), "a server that does not answer has kept nothing"


def test_where_no_cgroup_can_be_made_the_command_runs_as_it_is_and_the_run_can_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "V1", tmp_path / "v1")
    monkeypatch.setattr(memory, "V2", tmp_path / "v2")
    with Cage(MIB) as found:
        assert found.program("true") == ("true",)
        assert found.killed() == 0
    assert "v2" in found.why_not


def test_a_process_that_exceeds_its_cgroup_is_counted() -> None:
    with Cage(32 * MIB) as found:
        if found.why_not:
            pytest.skip("no memory cgroup can be made")
        command = found.program(sys.executable, "-c", "held = b'x' * (256 << 20)")
        assert subprocess.run(command, timeout=60).returncode == -signal.SIGKILL
        assert found.killed() == 1


@pytest.mark.timeout(300)
def test_with_room_each_peer_gets_at_what_it_is_to_hold(tmp_path: Path) -> None:
    with MortalServer(tmp_path) as server:
        with server.place.client() as client:
            for log in (LARGE, HUGE):
                client.create(log, LogSettings()).append([Event("Large", b"x" * LARGE_BYTES) for _ in range(4)])
        mallory = server.place._replace(user="mallory")
        names = [name for name in LOADS if name[:4] in ("read", "huge", "half")]
        kinds = {name: next(iter(LOADS[name].make(mallory))) for name in names}
        with Crowd(list(kinds.values())) as crowd:
            crowd.push(60)
            for name, peer in zip(kinds, crowd.connections, strict=True):
                assert peer.has_said_all, name
                if name[:4] != "half":
                    assert len(peer.socket.recv(LARGE_BYTES, socket.MSG_WAITALL)) == LARGE_BYTES, name
