"""`headwater clock`, and `headwater check --repair-clock`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.server.running import RunningServer, headwater
from tests.storage.builders import engine, event
from tests.storage.clocks import DAY_MS, Machine
from tests.waiting import eventually

from headwater.core.clocks import wall_clock_ms


def jumped(data: Path, ahead_ms: int) -> None:
    """A data directory whose log was written to by a clock that was accepted, so far ahead."""
    with engine(data) as one:
        one.create("orders").append([event()])
    machine = Machine(wall_clock_ms() + ahead_ms)
    with engine(data, clock=machine.shown) as one:
        one.clock.accept()
        one.open("orders").append([event()])


def test_a_spoilt_log_is_mended_by_the_command_and_then_said_to_be_so(tmp_path: Path) -> None:
    jumped(tmp_path / "d", 500 * DAY_MS)
    with RunningServer("--data", "d", "--log", "orders", cwd=tmp_path) as server:
        assert server.ask("/logs/orders/head")[0] == 200
        ready = json.loads(server.ask("/health/ready")[1])
        assert ready["status"] == "ready" and "--repair-clock orders" in ready["troubles"][0]
        assert server.terminate() == 0
    done = headwater("check", "--repair-clock", "orders", "--data", "d", cwd=tmp_path)
    assert done.returncode == 0 and "events 2 to 2" in done.stderr and "decreases at event 3" in done.stderr
    again = headwater("check", "--repair-clock", "orders", "--data", "d", cwd=tmp_path)
    assert again.returncode == 0 and "no events are recorded in the future" in again.stderr
    with RunningServer("--data", "d", "--log", "orders", cwd=tmp_path) as server:
        assert server.ask("/health/ready") == (200, '{"status": "ready"}')


def test_a_clock_that_is_not_believed_is_shown_and_accepted_while_the_server_runs(tmp_path: Path) -> None:
    with engine(tmp_path / "d") as one:
        one.create("orders").append([event()])
    long_ago = Machine(wall_clock_ms() - 100 * DAY_MS)
    with engine(tmp_path / "d", clock=long_ago.shown) as one:
        one.clock.accept()
        long_ago.now = wall_clock_ms()
        one.maintain()
        assert one.clock.is_held
    with RunningServer("--data", "d", "--log", "orders", cwd=tmp_path) as server:
        assert "the clock jumped ahead by 100 days" in server.ask("/health/ready")[1]
        assert "is not trusted" in headwater("clock", "--data", "d", cwd=tmp_path).stdout
        accepted = headwater("clock", "--accept", "--data", "d", cwd=tmp_path)
        assert accepted.returncode == 0 and "the clock is accepted" in accepted.stdout
        eventually(lambda: server.ask("/health/ready")[1] == '{"status": "ready"}', lambda: server.errors)
        assert "the clock is trusted" in headwater("clock", "--data", "d", cwd=tmp_path).stdout
        assert "headwater_clock_ahead_seconds 0.0" in server.ask("/metrics")[1]


def test_without_a_data_directory_it_says_so(tmp_path: Path) -> None:
    refused = headwater("clock", "--data", "nowhere", cwd=tmp_path)
    assert refused.returncode == 4 and "not a data directory" in refused.stderr
