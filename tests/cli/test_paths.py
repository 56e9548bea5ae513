"""Paths on the command line: a URL is none, a file that is there is kept, a database that is not there is not made."""

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headwater.cli import export
from headwater.cli.main import REFUSED, USAGE
from headwater.cli.main import headwater as program
from headwater.client import RemoteLog
from headwater.core import Event, SequencedEvent
from headwater.formats.envelope import encode_event
from headwater.server.config.settings import SETTINGS
from headwater.storage import Engine

URL = "s3://bucket/headwater"


@pytest.mark.parametrize(
    "arguments",
    [
        ("backup", URL),
        ("backup", "copy", "--data", URL),
        ("backup", "copy", "--config", f"{URL}.toml"),
        ("restore", URL, "data"),
        ("restore", "copy", URL),
        ("check", "--data", URL),
        ("clock", "--data", URL),
        ("user", "list", "--data", URL),
        ("config", "--data", URL),
        ("config", "--tls-certificate", f"{URL}.pem"),
        ("export", "orders", f"{URL}.ndjson"),
        ("import", f"{URL}.ndjson", "orders"),
        ("relay", f"{URL}.sqlite", "orders", "--once"),
        ("relay", "file:///app.sqlite", "orders", "--once"),
        ("logs", "list", "--ca-file", f"{URL}.pem"),
        ("events", "--ca-file", f"{URL}.pem"),
        ("pipeline", "archive", "--log", "orders", "--table", URL, "--dry-run"),
        ("pipeline", "export", "--log", "orders", "--to", URL, "--dry-run"),
        ("pipeline", "import", "--log", "orders", "--file", URL, "--dry-run"),
        ("pipeline", "archive", "--log", "orders", "--table", "orders", "--ca-file", URL, "--dry-run"),
    ],
)
def test_a_scheme_that_is_not_served_is_refused(headwater, arguments: tuple[str, ...]) -> None:
    outcome = headwater(*arguments)
    assert outcome.code in (REFUSED, USAGE)
    assert f"{'file' if arguments[1].startswith('file:') else 's3'}:// is not supported" in outcome.err
    assert list(Path().iterdir()) == []


def commands(group: click.Command, context: click.Context) -> Iterator[click.Command]:
    """The commands of a group, and of those in it."""
    if not isinstance(group, click.Group):
        yield group
        return
    for name in group.list_commands(context):
        if (command := group.get_command(context, name)) is not None:
            yield from commands(command, context)


def test_no_command_takes_a_url_for_a_path() -> None:
    context = click.Context(program)
    paths = [
        (command, parameter)
        for command in commands(program, context)
        for parameter in command.params
        if isinstance(parameter.type, click.Path)
    ]
    assert len(paths) > 20
    for command, parameter in paths:
        with pytest.raises(click.BadParameter, match="s3:// is not supported"):
            parameter.type.convert(URL, parameter, click.Context(command))


def test_no_setting_takes_a_url_for_a_path() -> None:
    paths = [setting for setting in SETTINGS.values() if isinstance(_read(setting, "here"), Path)]
    assert {"data", "tls.certificate", "http.unix"} <= {setting.key for setting in paths}
    for setting in paths:
        with pytest.raises(ValueError, match="s3:// is not supported"):
            setting.read(URL)


def _read(setting, text: str) -> object:
    try:
        return setting.read(text)
    except ValueError:
        return None


@pytest.mark.parametrize("name", ["C:data", "a:b", "c:\\data", "s3:x"])
def test_a_colon_alone_makes_no_url(headwater, log: RemoteLog, name: str) -> None:
    log.append([Event("A", b"1")])
    assert headwater("export", "orders", f"{name}.ndjson").code == 0
    assert [path.name for path in Path().iterdir()] == [f"{name}.ndjson"]


def test_export_keeps_a_file_that_is_there(headwater, log: RemoteLog) -> None:
    log.append([Event("A", b"1")])
    Path("orders.ndjson").write_text("mine")
    outcome = headwater("export", "orders", "orders.ndjson")
    assert outcome.code == REFUSED
    assert "orders.ndjson: the file already exists; give another name, or use --overwrite to replace it" in outcome.err
    assert Path("orders.ndjson").read_text() == "mine"
    assert headwater("export", "orders", "orders.ndjson", "--overwrite").code == 0
    assert '"type":"A"' in Path("orders.ndjson").read_text()


def test_export_replaces_nothing_but_files(headwater, log: RemoteLog) -> None:
    log.append([Event("A", b"1")])
    os.mkfifo("pipe.ndjson")
    Path("link.ndjson").symlink_to("pipe.ndjson")
    for name in ("pipe.ndjson", "link.ndjson"):
        outcome = headwater("export", "orders", name, "--overwrite")
        assert outcome.code == REFUSED
        assert f"{name}: this is a device, pipe or socket" in outcome.err
    assert Path("pipe.ndjson").is_fifo()
    assert Path("link.ndjson").is_symlink()


def test_export_keeps_a_file_that_came_meanwhile(headwater, log: RemoteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append([Event("A", b"1")])

    def line(event: SequencedEvent) -> bytes:
        Path("orders.ndjson").write_text("mine")
        return encode_event(event)

    monkeypatch.setattr(export, "encode_event", line)
    outcome = headwater("export", "orders", "orders.ndjson")
    assert outcome.code == REFUSED
    assert "orders.ndjson: the file already exists" in outcome.err
    assert [path.read_text() for path in Path().iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["e.ndjson", "./e.ndjson", "soft.ndjson", "hard.ndjson", "notes.txt", "dangling"])
def test_a_quarantine_is_no_file_that_is_there(headwater, log: RemoteLog, name: str) -> None:
    Path("e.ndjson").write_text('{"type":"A"}\n{"type":""}\n')
    Path("soft.ndjson").symlink_to("e.ndjson")
    Path("hard.ndjson").hardlink_to("e.ndjson")
    Path("notes.txt").write_text("mine")
    Path("dangling").symlink_to("nothing")
    before = {path.name: os.readlink(path) if path.is_symlink() else path.read_text() for path in Path().iterdir()}
    outcome = headwater("import", "e.ndjson", "new", "--create", "--quarantine", name)
    assert outcome.code == REFUSED
    assert f"{Path(name)}: the file already exists; give another name, or use move it away" in outcome.err
    after = {path.name: os.readlink(path) if path.is_symlink() else path.read_text() for path in Path().iterdir()}
    assert before == after
    assert headwater("logs", "show", "new").code == REFUSED


def test_a_path_that_begins_with_file_and_a_colon_is_no_uri_for_sqlite(headwater, log: RemoteLog) -> None:
    Engine("data").close()
    assert headwater("backup", "file:copy", "--data", "data").code == 0
    assert headwater("restore", "file:copy", "file:again").code == 0
    assert headwater("check", "--data", "file:again").code == 0
    Path("file:app.sqlite").touch()
    assert headwater("relay", "file:app.sqlite", "orders", "--once").code == 0
    assert sorted(path.name for path in Path().iterdir()) == ["data", "file:again", "file:app.sqlite", "file:copy"]
    assert Path("file:app.sqlite").stat().st_size > 0


@pytest.mark.parametrize("more", [(), ("--futoin",), ("--futoin", "--move")])
def test_relay_makes_no_database(headwater, log: RemoteLog, more: tuple[str, ...]) -> None:
    outcome = headwater("relay", "typo.sqlite", "orders", "--once", *more)
    assert outcome.code == REFUSED
    assert "'typo.sqlite': no such file; expected an existing SQLite file" in outcome.err
    assert list(Path().iterdir()) == []
