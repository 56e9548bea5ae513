"""The way from 0.1.1 and back, by the commands of docs/guides/upgrading.md, with the wheel of each version."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.interop.install import unavailable

from ..waiting import eventually
from .environments import COMMAND_S_MAX, PURE, ROOT, bare, built_wheel, environment, pip_wheel, serving

RELEASE = "c1db34dd"
"""The commit of 0.1.1."""
EVENTS = 300
KEPT = ("owner", "component", "acknowledged", "epoch", "registered_at")
USER = {"HEADWATER_USER": "ann", "HEADWATER_PASSWORD": "correct horse"}

pytestmark = pytest.mark.timeout(900)

_SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def old(disk: Path) -> Path:
    """The programs of 0.1.1, with the libraries of its time."""
    archive = subprocess.run(["git", "archive", RELEASE], cwd=ROOT, capture_output=True)
    if archive.returncode:
        unavailable(f"no history: {archive.stderr.decode()}")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(disk / "checkout", filter="data")
    [wheel] = pip_wheel(disk / "checkout", disk / "old", **PURE).glob("headwater-0.1.1-*.whl")
    return environment(disk / "old environment", str(wheel), disk / "checkout" / "constraints.txt")


@pytest.fixture(scope="module")
def new(disk: Path) -> Path:
    """The programs of this version."""
    return environment(disk / "new environment", str(built_wheel(disk / "new", **PURE)))


def test_an_upgrade_keeps_events_positions_and_users_and_the_backup_is_the_way_back(
    old: Path, new: Path, tmp_path: Path
) -> None:
    upgrade, rollback = _blocks(tmp_path)
    with serving(old, tmp_path) as urls:
        before = Shell(old, tmp_path, urls["http"])
        before.run("echo 'correct horse' | headwater user add ann --data data --grant 'all:*' --password-stdin")
        eventually(before.is_user_known)
        before.append(1)
        before.run("headwater consumers register orders billing worker")
        before.run("headwater consumers reset orders billing worker --after 200")
        stored, consumers = before.read(), before.consumers()
        assert before.run(upgrade).startswith("headwater, version 0.1.1\n")
    assert len(stored) == EVENTS and consumers
    with serving(new, tmp_path) as urls:
        after = Shell(new, tmp_path, urls["http"])
        assert after.is_user_known() and (after.read(), after.consumers()) == (stored, consumers)
        after.append(EVENTS + 1)
        assert [event["sequence_number"] for event in after.read()] == list(range(1, 2 * EVENTS + 1))
    Shell(old, tmp_path).run(rollback)
    with serving(old, tmp_path, "--data", "before") as urls:
        again = Shell(old, tmp_path, urls["http"])
        assert again.is_user_known() and (again.read(), again.consumers()) == (stored, consumers)


def _blocks(directory: Path) -> list[str]:
    """The commands of the page: those before an upgrade, and those of the way back."""
    (directory / "mnt").mkdir()
    page = (ROOT / "docs" / "guides" / "upgrading.md").read_text(encoding="utf-8")
    page = page.replace("/mnt/backup", f"{directory}/mnt").replace("/var/lib/headwater-before", f"{directory}/before")
    page = page.replace("--data /var/lib/headwater", "--data data")
    upgrade, rollback = [each for each in _SHELL.findall(page) if "before-upgrade" in each]
    assert "headwater backup" in upgrade and "headwater restore" in rollback
    return [upgrade, rollback]


class Shell:
    """Commands with the programs of one version, as the user of the server."""

    def __init__(self, programs: Path, directory: Path, url: str = "") -> None:
        self._directory = directory
        self._variables = bare() | ({**USER, "HEADWATER_URL": url, "HEADWATER_DATA": "data"} if url else {})
        self._variables["PATH"] = f"{programs}:{self._variables['PATH']}"

    def run(self, commands: str, **variables: str) -> str:
        """What they print; each must succeed."""
        done = subprocess.run(
            ["bash", "-ec", commands],
            cwd=self._directory,
            env=self._variables | variables,
            capture_output=True,
            text=True,
            timeout=COMMAND_S_MAX,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def is_user_known(self) -> bool:
        """Whether the server asks for the user: it learns of the first one within a second."""
        try:
            self.run("headwater logs list", HEADWATER_PASSWORD="wrong")
        except AssertionError as error:
            return "401" in str(error) or "password" in str(error)
        return False

    def append(self, first: int) -> None:
        """Append EVENTS events, numbered from `first` on in their tags."""
        lines = [json.dumps({"type": "Counted", "tags": [f"n:{n}"], "data": "7"}) for n in range(first, first + EVENTS)]
        (self._directory / "events.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.run("headwater append orders --events events.ndjson")

    def read(self) -> list[dict[str, Any]]:
        """All events of the log."""
        return [json.loads(line) for line in self.run("headwater read orders --json").splitlines()]

    def consumers(self) -> list[dict[str, Any]]:
        """The consumers of the log, without what changes with time."""
        told = json.loads(self.run("headwater consumers list orders --json"))
        return [{name: consumer[name] for name in KEPT} for consumer in told]
