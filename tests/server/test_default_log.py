"""The log `default` is the first of a new data directory, and none of others."""

from __future__ import annotations

import json
from pathlib import Path

from .running import RunningServer


def logs_of(tmp_path: Path, *arguments: str) -> list[str]:
    """The logs of a server that is started with these arguments."""
    with RunningServer("--data", "data", *arguments, cwd=tmp_path) as server:
        found: list[str] = json.loads(server.ask("/logs")[1])["logs"]
        assert server.terminate() == 0
    return found


def test_a_directory_that_has_logs_gets_none_that_nobody_named(tmp_path: Path) -> None:
    assert logs_of(tmp_path, "--log", "orders") == ["orders"]
    assert logs_of(tmp_path) == ["orders"]
    assert logs_of(tmp_path, "--log", "default") == ["default", "orders"]


def test_a_new_directory_gets_one_and_the_servers_own_log_does_not_count(tmp_path: Path) -> None:
    assert logs_of(tmp_path, "--management-keep") == ["$system", "default"]
