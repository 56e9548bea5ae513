"""`headwater home`: what is refused before any database is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cli.main import run
from headwater.storage import Engine
from headwater.storage.home.copy_file import COPY_NAME


@pytest.mark.parametrize(
    "arguments, expected, why",
    [
        (("init", "--sql", "--from", "."), 2, "--sql and --from cannot be combined"),
        (("init", "--from", "nothing"), 2, "it is not set; name the database with --home"),
        (("leave", "--data", "nothing"), 2, "it is not set; name the database with --home"),
        (("hand-over", "b.example:8080", "--data", "nothing"), 2, "it is not set; name the database with --home"),
        (("init", "--from", "nothing", "--home", "postgresql://127.0.0.1:1/x"), 4, "nothing is not a data directory"),
    ],
)
def test_a_command_that_cannot_be_done_says_why(
    arguments: tuple[str, ...],
    expected: int,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["home", *arguments]) == expected
    assert why in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_no_copy_while_no_database_took_its_logs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Engine(tmp_path / "data", maintains=False) as engine:
        engine.create("orders")
    assert run(["home", "init", "--from", str(tmp_path / "data"), "--home", "postgresql://127.0.0.1:1/x"]) == 4
    assert "127.0.0.1" in capsys.readouterr().err
    assert not (tmp_path / "data" / COPY_NAME).exists()
    Engine(tmp_path / "data", maintains=False).close()
