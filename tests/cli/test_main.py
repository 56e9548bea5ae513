"""The command line: help, errors as one line, exit codes; and the commands that need no server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from headwater import __version__
from headwater.cli.main import COMMANDS, exit_code, headwater, run
from headwater.client import ServerUnreachable
from headwater.core.errors import DiskFull, EventLogError, LogNotFound, StorageCorrupted, StorageUnavailable
from headwater.formats.settings.declaration import InvalidConfiguration
from headwater.server.config.settings import LOG_READERS, SETTINGS, Config
from headwater.server.users.accounts import Account
from headwater.speedups import BUILD

from ..server.running import environment

DOCS = Path(__file__).parents[2] / "docs"
NAMES = [name for section in COMMANDS.values() for name in section]


@pytest.fixture(autouse=True)
def _in_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
        monkeypatch.delenv(name)


def test_help_lists_every_command_and_imports_none_of_them() -> None:
    code = (
        "import sys; from headwater.cli.main import run; assert run(['--help']) == 0; "
        "heavy = {'numpy', 'pyarrow', 'httptools', 'websockets', 'prometheus_client', 'rich', 'headwater.storage'}; "
        "heavy.add('headwater.dcb'); "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_the_summary_of_the_list_and_an_example(name: str) -> None:
    (entry,) = (section[name] for section in COMMANDS.values() if name in section)
    command = headwater.get_command(click.Context(headwater), name)
    assert command is not None
    summary = (command.help or "").partition("\n")[0]
    assert summary == entry.summary
    commands = command.commands.values() if isinstance(command, click.Group) else [command]
    assert all("Example" in (each.epilog or "") for each in commands)


def test_the_version_is_told_and_which_build_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"headwater, version {__version__} ({BUILD})"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LogNotFound("x"), 1),
        (InvalidConfiguration("wrong", "host"), 2),
        (ServerUnreachable("http://127.0.0.1:1", "connection refused"), 3),
        (StorageUnavailable("locked"), 4),
        (DiskFull("/", 1, 2), 4),
        (StorageCorrupted("/", "bit rot", "restore"), 5),
    ],
)
def test_errors_have_their_exit_codes(error: EventLogError, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["srve"], 2, "No such command 'srve'. Did you mean 'serve'?"),
        (["config", "--http-port", "x"], 2, "headwater: --http-port: expected a whole number from 0 to 65535"),
        (["config", "--config", "none.toml"], 2, "headwater: none.toml: cannot be read: No such file or directory"),
        (
            ["config", "--tls-certificate", "c.pem", "--tls-key", "k.pem", "--tls-client-ca", "none.pem"],
            2,
            "headwater: tls.certificate: c.pem does not exist or is not readable",
        ),
        (
            ["config", "--cne-webhook-ca", "none.pem"],
            2,
            "headwater: cne.webhook_ca: ",
        ),
        (["check", "--data", "nowhere"], 4, "headwater: nowhere: "),
        (["user", "add", "a b", "--grant", "all:*", "--token"], 1, "headwater: user name: 'a b' does not match"),
        (["user", "add", "bob", "--grant", "rd:*", "--token"], 1, "headwater: grants: expected RIGHTS:PATTERN"),
        (["user", "add", "bob"], 2, "Missing option '--grant'"),
        (
            ["user", "add", "bob", "--grant", "all:*", "--token", "--data", "/proc/nothing"],
            4,
            "headwater: /proc/nothing: cannot create the data directory: ",
        ),
    ],
)
def test_a_mistake_is_one_line_and_a_code(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == code
    captured = capsys.readouterr()
    assert said in captured.err and "Traceback" not in captured.err and not captured.out


@pytest.mark.parametrize(
    ("has_inodes", "remedy"), [(True, "free 3996 bytes on d, and start"), (False, "remove some files, and start")]
)
def test_a_start_on_a_full_disk_says_what_to_free(
    has_inodes: bool, remedy: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(config: Config, announce: object) -> None:
        raise DiskFull("d/state.sqlite", 100, 4096, has_inodes)

    monkeypatch.setattr("headwater.server.app.serve", serve)
    monkeypatch.setattr("headwater.cli.serve.configure_logging", lambda level: None)
    assert run(["serve", "--data", "d"]) == 4
    said = capsys.readouterr().err
    assert said.startswith("headwater: cannot start: d/state.sqlite: ") and said.endswith(f"; {remedy} again\n")


def test_config_prints_what_would_count(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_HTTP_PORT", "9000")
    assert run(["config", "--host", "localhost", "--log", "orders:4", "--insecure"]) == 0
    out = capsys.readouterr().out
    tables = tomllib.loads(out)
    assert (tables["host"], tables["http"]["port"], tables["insecure"]) == ("localhost", 9000, True)
    assert tables["logs"] == {"orders": {"partitions": 4}}
    assert "# HEADWATER_HTTP_PORT" in out and "# --host" in out and "# --log" in out


def test_users_are_added_listed_replaced_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    add = ["user", "add", "robot", "--grant", "read,append:orders-*", "--token"]
    assert run([*add, "--key"]) == 0
    captured = capsys.readouterr()
    token = captured.out.partition("token: ")[2].partition("\n")[0]
    assert token.startswith("hw_") and "key: " in captured.out
    assert run(add) == 1
    assert "user 'robot' already exists; use --replace" in capsys.readouterr().err
    assert run([*add, "--replace"]) == 0
    capsys.readouterr()
    assert run(["user", "list", "--json"]) == 0
    listed = capsys.readouterr().out
    assert json.loads(listed) == [
        {"name": "robot", "grants": ["read,append:orders-*"], "secrets": ["token"], "origin": "data directory"}
    ]
    assert token not in listed
    assert run(["user", "remove", "bob"]) == 1
    assert "headwater: there is no user 'bob' in" in capsys.readouterr().err
    assert run(["user", "remove", "robot"]) == 0
    assert "it was the last user" in capsys.readouterr().err
    assert run(["user", "list"]) == 0
    assert "no users" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["user", "list"],
        ["user", "remove", "bob"],
        ["user", "allow-everybody"],
        ["check"],
        ["scrub"],
        ["scrub", "--now"],
        ["clock"],
        ["backup", "copy"],
    ],
)
def test_only_adding_a_user_creates_a_data_directory(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*arguments, "--data", "nowhere"]) == 4
    said = capsys.readouterr().err
    assert "headwater: nowhere: not a data directory" in said and "--data" in said
    assert not Path("nowhere").exists() and not Path("copy").exists()


def test_a_printed_user_fits_the_configuration_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["user", "add", "bob", "--grant", "all:*", "--token", "--key", "--print"]) == 0
    captured = capsys.readouterr()
    Path("headwater.toml").write_text(captured.out, encoding="utf-8")
    account = Account.of_table("bob", tomllib.loads(captured.out)["users"]["bob"])
    assert account.tokens and account.key
    assert not Path("headwater-data").exists()
    assert run(["user", "add", "robot", "--grant", "all:*", "--token"]) == 0
    capsys.readouterr()
    assert run(["user", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["origin"] == "headwater.toml"


def test_every_setting_is_in_the_configuration_reference() -> None:
    text = (DOCS / "reference" / "configuration.md").read_text(encoding="utf-8")
    missing = {setting.key for setting in SETTINGS.values() if f"`{setting.key}`" not in text}
    missing |= {name for name in LOG_READERS if f"`{name}`" not in text}
    assert missing == set()


def test_every_command_and_option_is_in_the_command_reference() -> None:
    text = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    missing = set()
    for name in NAMES:
        command = headwater.get_command(click.Context(headwater), name)
        group = command.commands if isinstance(command, click.Group) else {}
        for entry in {name: command, **{f"{name} {inner}": entry for inner, entry in group.items()}}.items():
            assert entry[1] is not None
            missing |= {entry[0]} if f"`headwater {entry[0]}" not in text else set()
            flags = {
                flag
                for parameter in entry[1].params
                if not getattr(parameter, "hidden", False)
                for flag in parameter.opts
                if flag.startswith("--")
            }
            missing |= {flag for flag in flags - {known.flag for known in SETTINGS.values()} if f"`{flag}" not in text}
    assert missing == set()
