"""Servers that are observed: one for everybody, and one that has users."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.server.users.accounts import hash_password

from .measuring import ObservedServer

LIMITS = """
[limits]
unindexed_bytes_max = "16GiB"
"""
"""No append waits for the index: what each costs is to be seen."""
USERS = f"""
[users.alice]
password = {hash_password("correcthorse")!r}
key = "YSBzZWNyZXQga2V5IHRoYXQgaXMgbG9uZyBlbm91Z2g="
grants = ["all:*"]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedServer]:
    """It allows everything to everybody, and has a log."""
    folder = tmp_path_factory.mktemp("cost")
    (folder / "config.toml").write_text(LIMITS)
    with ObservedServer("--config", "config.toml", "--data", "data", "--log", "l", cwd=folder) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObservedServer]:
    """It has a user, and a log."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "config.toml").write_text(USERS)
    with ObservedServer("--config", "config.toml", "--data", "data", "--log", "l", cwd=folder) as running:
        yield running
