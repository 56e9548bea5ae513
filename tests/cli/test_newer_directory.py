"""A data directory that a newer headwater wrote is called newer by every command, never damaged, and stays as it is."""

from __future__ import annotations

import re
import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import google_crc32c
import pytest
from tests.server.running import RunningServer, headwater

from headwater.cli.main import DAMAGED, UNAVAILABLE
from headwater.core import Event
from headwater.core.errors import StorageUnavailable
from headwater.core.limits import EventColumns
from headwater.core.mark import Mark
from headwater.storage import Engine, backup
from headwater.storage.disk.checked_file import with_checksum
from headwater.storage.frames.frame import Frame
from headwater.storage.segments.meta import read_meta
from headwater.storage.segments.segment import SEGMENT_HEADER_BYTES
from headwater.storage.state.journal import HadUsers, Journal

Change = Callable[[Path], None]
COMMANDS = {
    "check": ["check", "--data", "{data}"],
    "serve": [
        "serve",
        "--data",
        "{data}",
        "--http-port",
        "0",
        "--amqp-port",
        "0",
        "--flight-enabled",
        "false",
        "--log",
        "orders",
    ],
    "backup": ["backup", "{data}-copy", "--data", "{data}"],
    "restore": ["restore", "{backup}", "{data}-copy"],
    "user": ["user", "list", "--data", "{data}"],
    "accept-loss": ["check", "--accept-loss", "orders", "--data", "{data}"],
    "accept-state-loss": ["check", "--accept-state-loss", "--data", "{data}"],
}
STATE = ["check", "serve", "user", "accept-state-loss"]
LOG = ["check", "backup", "accept-loss"]


def schema(data: Path) -> None:
    with closing(sqlite3.connect(data / "state.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 99")


def format_of(path: str) -> Change:
    """That checked file says that it is of format 99."""

    def change(data: Path) -> None:
        (file,) = data.glob(path)
        content = re.sub(rb'"format": ?\d+', b'"format":99', file.read_bytes())
        file.write_bytes(with_checksum(content[: content.rindex(b",")].rstrip() + b"}"))

    return change


def segment_of(path: str) -> Change:
    """The header of the last segment there says that it is of version 9."""

    def change(data: Path) -> None:
        file = max(data.glob(path))
        content = bytearray(file.read_bytes())
        struct.pack_into("<I", content, 8, 9)
        crc = google_crc32c.value(bytes(content[: SEGMENT_HEADER_BYTES - 4]))
        struct.pack_into("<I", content, SEGMENT_HEADER_BYTES - 4, crc)
        file.write_bytes(content)

    return change


def frame(data: Path) -> None:
    """The first frame of the log is of version 9."""
    (directory,) = data.glob("logs/orders.*")
    seed = read_meta(directory).crc_seed
    (file,) = directory.glob("log/*.log")
    content = bytearray(file.read_bytes())
    length = Frame(memoryview(content), SEGMENT_HEADER_BYTES, seed).length
    rest = content[SEGMENT_HEADER_BYTES + 8 : SEGMENT_HEADER_BYTES + length]
    struct.pack_into("<H", rest, 8, 9)
    content[SEGMENT_HEADER_BYTES + 8 : SEGMENT_HEADER_BYTES + length] = rest
    struct.pack_into("<I", content, SEGMENT_HEADER_BYTES + 4, google_crc32c.extend(seed, bytes(rest)))
    file.write_bytes(content)
    forget_clean_stop(directory)


def forget_clean_stop(directory: Path) -> None:
    """As after a kill: every frame is looked at when the log is opened."""
    read_meta(directory).changed(clean=None).write(directory)


def copy_mark(data: Path) -> None:
    (data / "COPY").write_bytes(with_checksum(b'{"format":99,"home":"other"}'))


def record_type(data: Path) -> None:
    """The last record of the journal is of a type that is not known here."""
    from headwater.storage.disk.system import Disk
    from headwater.storage.state import journal

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "_TYPES", {HadUsers: "from-the-future"})
        with closing(Journal(data / "journal", confirmed=0, disk=Disk(), clock=lambda: 0)) as written:
            written.append([HadUsers(True)], is_durable=True)


NEWER: dict[str, tuple[Change, list[str]]] = {
    "state schema": (schema, [*STATE, "backup"]),
    "journal META": (format_of("journal/META.json"), [*STATE, "backup"]),
    "journal segment": (segment_of("journal/log/*.log"), [*STATE, "backup"]),
    "journal record": (record_type, [*STATE, "backup"]),
    "copy mark": (copy_mark, STATE[:3]),
    "log META": (format_of("logs/orders.*/META.json"), LOG),
    "log segment": (segment_of("logs/orders.*/log/*.log"), LOG),
    "frame": (frame, LOG),
    "writers": (format_of("logs/orders.*/WRITERS.json"), ["check"]),
    "backup": (format_of("BACKUP.json"), ["check", "restore"]),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a log that has a marked append, and a backup of it."""
    place = tmp_path_factory.mktemp("written")
    with Engine(place / "data", reserve_bytes=0) as engine:
        log = engine.create("orders")
        log.append([Event("Placed")] * 3)
        log.append_columns(EventColumns.none(), mark=Mark("writer", 1, 0, True))
    backup(place / "data", place / "backup")
    return place


@pytest.mark.parametrize(("kind", "command"), [(kind, each) for kind, (_, names) in NEWER.items() for each in names])
def test_what_a_newer_headwater_wrote_is_called_newer(written: Path, tmp_path: Path, kind: str, command: str) -> None:
    data, copy = tmp_path / "data", tmp_path / "backup"
    shutil.copytree(written / "data", data, ignore=shutil.ignore_patterns("*.sock"))
    shutil.copytree(written / "backup", copy)
    NEWER[kind][0](copy if kind == "backup" else data)
    looked_at = copy if kind == "backup" and command == "check" else data
    done = headwater(*(each.format(data=looked_at, backup=copy) for each in COMMANDS[command]), cwd=tmp_path)
    said = done.stdout + done.stderr
    assert (done.returncode, "damaged" in said) == (UNAVAILABLE, False), said
    assert "was written by a newer headwater" in said and said.rstrip().endswith("use a newer headwater"), said
    assert not list(data.glob("state.lost-*"))


def test_an_engine_calls_a_newer_log_newer(written: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(written / "data", tmp_path / "data", ignore=shutil.ignore_patterns("*.sock")))
    frame(data)
    with Engine(data, reserve_bytes=0) as engine:
        with pytest.raises(StorageUnavailable, match=r"\.log was written by a newer headwater .*use a newer headwater"):
            engine.open("orders")
        assert engine.troubles() == [
            "log orders is stopped; see the log line on stderr, or stop the server, then run headwater check"
        ]


@pytest.mark.parametrize("kind", ["log META", "log segment", "frame", "writers"])
def test_a_server_calls_a_newer_log_newer_and_serves_the_others(written: Path, tmp_path: Path, kind: str) -> None:
    data = Path(shutil.copytree(written / "data", tmp_path / "data", ignore=shutil.ignore_patterns("*.sock")))
    NEWER[kind][0](data)
    with RunningServer("--data", str(data), "--log", "default", "--log", "orders:4", cwd=tmp_path) as server:
        status, answer = server.ask("/logs/orders/append", b'{"events":[{"type":"E"}]}')
        assert status == 503 and "it was written by a newer headwater than this one" in answer, (status, answer)
        assert server.ask("/logs/default/append", b'{"events":[{"type":"E"}]}')[0] == 200
        assert re.search("log orders is stopped: .* was written by a newer headwater", server.errors), server.errors
        assert server.terminate() == 0


def test_damage_beside_what_is_newer_is_told_as_damage(written: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(written / "data", tmp_path / "data", ignore=shutil.ignore_patterns("*.sock")))
    with Engine(data, reserve_bytes=0) as engine:
        engine.create("other").append([Event("E")])
    format_of("logs/orders.*/META.json")(data)
    (segment,) = data.glob("logs/other.*/log/*.log")
    segment.write_bytes(b"X" + segment.read_bytes()[1:])
    done = headwater("check", "--data", str(data), cwd=tmp_path)
    assert done.returncode == DAMAGED
    assert "orders: written by a newer headwater" in done.stdout and "other: 1 problems" in done.stdout
