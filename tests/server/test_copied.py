"""A server on a copy of another server's data directory is refused; when that one has stopped, it warns once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli.main import UNAVAILABLE
from tests.server.running import RunningServer, headwater


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes do not see each other's directories")
def test_a_server_on_a_copy_is_refused_while_the_first_one_runs_and_warns_once_after_it(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    with RunningServer("--data", str(data), "--log", "orders", cwd=tmp_path) as first:
        subprocess.run(["cp", "-a", str(data), str(copy)], check=True)
        refused = headwater("serve", "--data", str(copy), cwd=tmp_path)
        assert refused.returncode == UNAVAILABLE
        assert f"{copy}: it was copied from {data}, and another process on this machine serves" in refused.stderr
        assert first.terminate() == 0
    told = f"{copy}: it is a copy of {data}, which still exists"
    for expected in (1, 0):
        with RunningServer("--data", str(copy), "--log", "orders", cwd=tmp_path) as second:
            assert second.terminate() == 0
            assert second.errors.count(told) == expected
