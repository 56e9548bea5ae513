"""A server on a small disk that gets full: what it takes, what it says to whom, and that it goes on by itself."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from headwater.amqp.client import Client
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.performatives import Accepted, Rejected
from headwater.cli.main import UNAVAILABLE
from headwater.core import Event
from headwater.core.errors import DiskFull
from headwater.storage import Engine
from headwater.storage.disk.ballast import give_up
from tests.amqp.asking import message
from tests.waiting import eventually

from .running import RunningServer, headwater
from .starting import PROGRAM
from .test_amqp import amqp_url

MIB = 2**20
DISK_BYTES = 64 * MIB
LARGE = json.dumps({"events": [{"type": "Placed", "data": "x" * 256 * 1024}]}).encode()
ONE = b'{"events": [{"type": "Placed", "data": ""}]}'
ON_A_SEAM = [
    sys.executable,
    "-c",
    "from headwater.storage import engine; from tests.storage.disks import SmallDisk; "
    f"disk = SmallDisk({DISK_BYTES}); engine.Disk = lambda: disk; "
    "from headwater.cli.main import main; main()",
]
"""Where nobody may mount: a server whose disk only says that it is small."""
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def small_disk(directory: Path) -> Iterator[tuple[Path, Sequence[str]]]:
    """A directory on a file system of so many bytes, and the program to serve it: a real one where we may mount."""
    data = directory / "small"
    data.mkdir()
    if _libc.mount(b"tmpfs", os.fsencode(data), b"tmpfs", 0, f"size={DISK_BYTES}".encode()) != 0:
        yield data, ON_A_SEAM
        return
    try:
        yield data, PROGRAM
    finally:
        _libc.umount2(os.fsencode(data), 2)  # MNT_DETACH


@pytest.fixture(params=["mounted", "seam"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Sequence[str]]]:
    if request.param == "seam":
        yield tmp_path / "data", ON_A_SEAM
    else:
        with small_disk(tmp_path) as found:
            yield found


def measured(server: RunningServer, metric: str) -> float:
    lines = [line for line in server.ask("/metrics")[1].splitlines() if line.startswith(metric)]
    return float(lines[0].rpartition(" ")[2]) if lines else 0.0


def test_a_small_disk_is_used_down_to_the_reserve_and_everybody_says_so_together(
    disk: tuple[Path, Sequence[str]], tmp_path: Path
) -> None:
    data, program = disk
    arguments = ("--data", str(data), "--log", "orders")
    with RunningServer(*arguments, cwd=tmp_path, program=program) as server, Client(amqp_url(server)) as client:
        sender = client.sender("orders")
        taken = 0
        while True:
            ready, low = server.ask("/health/ready")[0], measured(server, "headwater_disk_low")
            status, text = server.ask("/logs/orders/append", LARGE)
            if status != 200:
                break
            assert (ready, low) == (200, 0)
            taken += 256 * 1024
        assert (status, ready, low) == (507, 503, 1), "readiness and the metric knew before the append was refused"
        problem = json.loads(text)
        assert problem["free_bytes"] < problem["needed_bytes"] <= DISK_BYTES // 10
        assert taken > 44 * MIB
        told = 'headwater_management_events_total{type="io.headwater.disk.low"}'
        assert measured(server, told) == 1

        refused = sender.send(message(b"no room"))
        assert isinstance(refused, Rejected) and refused.error is not None
        assert refused.error.condition == conditions.RESOURCE_LIMIT_EXCEEDED
        head = json.loads(server.ask("/logs/orders/head")[1])["head"]
        assert server.ask("/logs/orders/read", b'{"query": "all", "limit": 1}')[0] == 200
        assert server.ask("/logs/orders/trim", json.dumps({"below": head}).encode())[0] == 200

        eventually(lambda: server.ask("/health/ready")[0] == 200, lambda: server.errors)
        assert server.ask("/logs/orders/append", ONE)[0] == 200
        assert sender.send(message(b"room")) == Accepted()
        assert measured(server, told.replace("low", "recovered")) == 1
        assert measured(server, "headwater_disk_low") == 0
        assert "Traceback" not in server.errors


INODES = 256


@pytest.fixture(params=["ext4", "tmpfs"])
def full_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system with few bytes and few inodes."""
    mounted, image = tmp_path / "mounted", tmp_path / "image"
    mounted.mkdir()
    size = f"size={DISK_BYTES},nr_inodes={INODES}"
    commands = [["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(mounted)]]
    if request.param == "ext4":
        image.write_bytes(b"")
        os.truncate(image, DISK_BYTES)
        make = ["mkfs.ext4", "-q", "-m", "0", "-N", str(INODES), str(image)]
        commands = [make, ["mount", "-o", "loop", str(image), str(mounted)]]
    try:
        for command in commands:
            subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no loop device can be mounted")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "-l", str(mounted)], check=True)


def take_all(directory: Path, what: str) -> None:
    """What other programs do to a disk: not a block is left, or not an inode."""
    with suppress(OSError):
        for number in range(1 if what == "blocks" else INODES + 1):
            with open(directory / f"other-{number}-{what}", "ab", buffering=0) as file:
                for size in (MIB, 4096) if what == "blocks" else ():
                    with suppress(OSError):
                        while True:
                            file.write(bytes(size))
    found = os.statvfs(directory)
    assert (found.f_bavail if what == "blocks" else found.f_favail) < 4  # the server tries for space meanwhile


@pytest.mark.parametrize("what", ["blocks", "inodes"])
def test_what_frees_space_works_on_a_disk_that_others_have_filled(full_disk: Path, tmp_path: Path, what: str) -> None:
    data = full_disk / "data"
    arguments = ("--data", str(data), "--log", "orders", "--limits-disk-ballast-bytes", str(5 * MIB))
    flight = ("--flight-enabled", "true", "--flight-port", "0")
    places = [tmp_path / str(number) for number in range(2)]
    for place in places:
        place.mkdir()
    with RunningServer(*arguments, *flight, "--log", "gone", cwd=places[0]) as server:
        for _ in range(8):
            assert server.ask("/logs/orders/append", ONE)[0] == 200
        eventually(lambda: len(list((data / "ballast").glob("0?"))) == 5, lambda: server.errors)
        take_all(full_disk, what)
        status, text = server.ask("/logs/orders/append", LARGE if what == "blocks" else ONE)
        assert (status == 507) is (what == "blocks"), text
        refused = headwater("logs", "create", "new", "--url", server.url, cwd=tmp_path)
        assert refused.returncode == UNAVAILABLE
        assert ("no free inodes" if what == "inodes" else "0 bytes are free") in refused.stderr
        trimmed = server.ask("/logs/orders/trim", b'{"below": 5}')
        assert trimmed[0] == 200, (trimmed, server.errors)
        for command in (("logs", "delete", "gone", "--yes", "--url", server.url),
                        ("user", "list", "--data", str(data)),
                        ("backup", "--data", str(data), str(tmp_path / "backup"))):  # fmt: skip
            done = headwater(*command, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
        assert server.terminate() == 0
        assert "could not be stored" not in server.errors
    take_all(full_disk, what)
    with RunningServer(*arguments, *flight, cwd=places[1]) as server:
        assert server.url, server.errors
        assert server.ask("/logs/orders/read", b'{"query": "all"}')[0] == 200
        assert json.loads(server.ask("/logs/orders/head")[1])["head"] >= 8
        assert server.ask("/logs/gone/head")[0] == 404
        assert server.terminate() == 0


def test_without_a_reserve_appends_leave_what_the_ballast_gave_up(full_disk: Path) -> None:
    data, other = full_disk / "data", full_disk / "other-0-blocks"
    with Engine(data, reserve_bytes=0, ballast_bytes=4 * MIB, maintains=False) as engine:
        log = engine.create("orders")
        log.append([Event("Placed")])
        for _ in range(5):
            engine.maintain()
        assert len(list((data / "ballast").glob("0?"))) == 4
        take_all(full_disk, "blocks")
        assert give_up(data) and give_up(data)
        before = os.statvfs(data).f_bfree
        for size in (10, 100_000, 1_000_000):
            with pytest.raises(DiskFull):
                log.append([Event("Placed", bytes(size))])
        assert os.statvfs(data).f_bfree >= before - 4
        log.trim(2)
        assert engine.unready() is not None
        other.unlink()
        for _ in range(5):
            engine.maintain()
        assert (engine.unready(), len(list((data / "ballast").glob("0?")))) == (None, 4)
        assert log.append([Event("Placed", bytes(100_000))]).first == 2
