"""A server takes as many open files as it may have, and says where those are too few."""

from __future__ import annotations

import logging
import resource
from pathlib import Path

import pytest

from headwater.server.config.settings import Config
from headwater.server.startup.open_files import FILES_MAX, raise_open_files

from ..running import RunningServer

INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "taken"),
    [
        (1024, 524_288, 524_288),
        (1024, 2 * FILES_MAX, FILES_MAX),
        (1024, INFINITE, FILES_MAX),
        (2 * FILES_MAX, INFINITE, None),
        (INFINITE, INFINITE, None),
        (65_536, 65_536, None),
    ],
)
def test_what_the_system_grants_is_taken(
    soft: int, hard: int, taken: int | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = limited(soft, hard, monkeypatch)
    assert raise_open_files(Config()) == (soft if taken is None else taken)
    assert asked == ([] if taken is None else [(taken, hard)])
    assert not caplog.records


def test_too_few_are_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    limited(1024, 4096, monkeypatch)
    with caplog.at_level(logging.WARNING):
        assert raise_open_files(Config()) == 4096
    (record,) = caplog.records
    told = record.__dict__["fields"]
    assert (told["allowed"], told["needed"]) == (4096, 21_024)
    assert "http.connections_max" in told["advice"]


def test_a_server_that_is_started_with_few_files_takes_what_it_may(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 4096
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        server = RunningServer("--storage", "memory", cwd=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with server:
        taken, granted = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        assert granted == hard and taken > few


def limited(soft: int, hard: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Let the system have these limits; answers what is asked of it."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: asked.append(limits))
    return asked
