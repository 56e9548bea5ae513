"""Small files with a checksum over every byte; directories that outlive a power cut; looking without writing."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from headwater.core import OpenGuard
from headwater.dcb import Application
from headwater.storage import check_directory
from headwater.storage.disk.checked_file import checksum_fits, with_checksum
from headwater.storage.maintenance.worker import IndexWorker, do
from headwater.storage.segments.meta import META_NAME

from ...dcb.conftest import Client
from ..builders import engine, event, fill, log_directory, without_identities


@pytest.mark.parametrize("indent", [None, 2])
def test_the_checksum_is_that_of_the_file_with_zeros_in_its_place(indent: int | None) -> None:
    content = with_checksum(b'{"format":3,"crc32c_":"00000000"}', indent)
    (digits,) = re.findall(rb'"crc32c": ?"([0-9a-f]{8})"\s*\}\s*$', content)
    assert int(digits, 16) == google_crc32c.value(content.replace(digits, b"00000000"))
    assert list(json.loads(content)) == ["format", "crc32c_", "crc32c"]
    assert checksum_fits(content)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"a":1}\n', b'{"crc32c":"00000000","a":1}', b'{"crc32c":"0"}'])
def test_a_file_that_does_not_end_with_a_checksum_has_none(content: bytes) -> None:
    assert checksum_fits(content) is None


@pytest.mark.parametrize("bit", range(8))
def test_no_flip_of_one_or_two_neighbouring_bits_is_overlooked(bit: int) -> None:
    content = with_checksum(b'{"format":3,"name":"orders"}', 2)
    for at in range(len(content)):
        for mask in (1 << bit, 3 << bit & 0xFF):
            hurt = bytearray(content)
            hurt[at] ^= mask
            assert not checksum_fits(bytes(hurt))


def test_a_hurt_log_is_a_problem_with_text_over_http(data: Path) -> None:
    with engine(data) as one:
        one.create("orders")
        one.create("flights").append([event()])
    without_identities(data)
    for content in (b"\xff\xfe", b"{}", b'{"format": 3, "segments_id": "zz"}'):
        (log_directory(data) / META_NAME).write_bytes(content)
        with engine(data) as one:
            client = Client(Application(one, OpenGuard()))
            answer = client.post("/logs/orders/read", {"query": {"items": "all"}})
            assert (answer.status, answer.code) == (500, "storage_corrupted")
            assert client.get("/logs/flights").status == 200
            client.close()


# What a power cut leaves.


class Watch:
    """Which directories were made, and which of them are known to be in the one above, durably."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Path] = []
        self.durable: set[Path] = set()
        mkdir, fsync = os.mkdir, os.fsync

        def making(path: Any, *more: Any, **keywords: Any) -> None:
            mkdir(path, *more, **keywords)
            self.made.append(Path(path))

        def syncing(fd: int) -> None:
            fsync(fd)
            synced = Path(os.readlink(f"/proc/self/fd/{fd}"))
            self.durable.update(path for path in self.made if path.parent == synced)

        monkeypatch.setattr(os, "mkdir", making)
        monkeypatch.setattr(os, "fsync", syncing)


def test_every_directory_on_the_way_to_an_acknowledged_event_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(monkeypatch)
    data = tmp_path / "new" / "deep" / "data"
    with engine(data) as one:
        one.create("orders").append([event()])
        names = {str(path.relative_to(tmp_path)) for path in watch.made}
        log = f"new/deep/data/logs/{log_directory(data).name}"
        assert names >= {"new", "new/deep", "new/deep/data", "new/deep/data/logs", log, f"{log}/log", f"{log}/history"}
        assert set(watch.made) == watch.durable


def test_logs_that_were_made_without_a_sync_are_synced_when_they_are_opened(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(data) as one:
        one.create("orders")
    watch = Watch(monkeypatch)
    watch.made.append(data / "logs")
    with engine(data):
        assert data / "logs" in watch.durable


# Looking opens nothing for writing.


class Written:
    """What is written below a directory while it is watched; SQLite opens its files behind Python's back."""

    def __init__(self) -> None:
        self.below: str | None = None
        self.found: list[str] = []
        sys.addaudithook(self)

    def __call__(self, name: str, given: tuple[Any, ...]) -> None:
        if self.below is None or not given or not str(given[0]).startswith(self.below):
            return
        changes = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.link", "sqlite3.connect")
        if name in changes or (name == "open" and given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            self.found.append(f"{name} {given}")


_written: list[Written] = []


@pytest.fixture
def written(data: Path) -> Iterator[Written]:
    """One for all tests: an audit hook stays."""
    if not _written:
        _written.append(Written())
    _written[0].found.clear()
    yield _written[0]
    _written[0].below = None


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize("is_served_before", [True, False])
def test_check_writes_nothing(
    data: Path, written: Written, is_served_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IndexWorker, "run", lambda self, job: do(job).problem)
    with engine(data) as one:
        orders = one.create("orders")
        fill(orders, 100, data=b"d" * 60)
        one.maintain()
        orders.trim(50)
        one.maintain()
        one.state.put("kept", "in the WAL", b"1")
    if not is_served_before:
        (data / "LOCK").unlink()
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    written.below = str(data)
    assert check_directory(data).is_sound
    assert written.found == []
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before
    engine(data).close()
    assert written.found, "the watch works"
