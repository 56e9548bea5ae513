"""The model of a disk, and the recorder: what they say of a few operations that can be judged by hand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.server.running import environment

from .disk import Kind, PowerDisk, Unmodelled
from .leaving import Fate
from .recording import Operation, Record, Recording, read_records

ROOT = Path("/root-of-the-record")
ROOT_INODE, FILE, DIRECTORY = 1, 2, 3
KINDS = pytest.mark.parametrize("kind", list(Kind))
TRIES = 300


class Story:
    """Records that are told one after the other."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def __call__(
        self, operation: Operation, file: int = 0, path: str = "", other: str = "", data: bytes = b"", at: int = 0,
        size: int = 0,
    ) -> Story:  # fmt: skip
        number = len(self.records)
        if operation in (Operation.SYNC, Operation.DATASYNC):
            at = number
        names = [f"{ROOT}/{each}" if each else "" for each in (path, other)]
        self.records.append(Record(number, operation, file, at, size, *names, data))
        return self

    def created(self, data: bytes) -> Story:
        """A file `a` with these bytes, durably."""
        self(Operation.CREATE, FILE, "a")(Operation.WRITE, FILE, data=data)
        return self(Operation.SYNC, FILE)(Operation.SYNC, ROOT_INODE)

    def states(self, kind: Kind, tmp_path: Path) -> set[tuple[tuple[str, bytes], ...]]:
        """What may be left, as names and bytes: many tries."""
        disk = PowerDisk(ROOT, ROOT_INODE, kind)
        for record in self.records:
            disk.tell(record)
        found = set()
        tmp_path.mkdir(exist_ok=True)
        for seed in range(TRIES):
            target = tmp_path / f"{kind.value}-{seed}"
            disk.lose_power(target, Random(seed))
            files = sorted(path for path in target.rglob("*") if path.is_file())
            found.add(tuple((path.relative_to(target).as_posix(), path.read_bytes()) for path in files))
        return found


@KINDS
def test_what_was_synced_is_there_and_what_was_not_may_be(kind: Kind, tmp_path: Path) -> None:
    story = Story().created(b"old")(Operation.WRITE, FILE, data=b"new")
    assert story.states(kind, tmp_path) == {(("a", b"old"),), (("a", b"new"),)}
    assert story(Operation.DATASYNC, FILE).states(kind, tmp_path / "synced") == {(("a", b"new"),)}


@KINDS
def test_a_write_that_is_synced_alone_is_durable_and_what_was_written_before_is_not(kind: Kind, tmp_path: Path) -> None:
    story = Story().created(b"12345678")(Operation.WRITE, FILE, data=b"ab")(Operation.WRITE, FILE, data=b"yz", at=6)
    story(Operation.WRITESYNC, FILE, at=6, size=2)
    assert story.states(kind, tmp_path) == {(("a", b"123456yz"),), (("a", b"ab3456yz"),)}
    story(Operation.WRITE, FILE, data=b"ABC")(Operation.WRITESYNC, FILE, at=0, size=3)
    with pytest.raises(Unmodelled):
        story.states(kind, tmp_path / "over")


@KINDS
def test_a_sync_says_nothing_of_what_was_written_after_it_began(kind: Kind, tmp_path: Path) -> None:
    story = Story().created(b"old")(Operation.WRITE, FILE, data=b"new")
    [*_, write] = story.records
    story.records.append(Record(write.number + 1, Operation.SYNC, FILE, write.number, 0, "", "", b""))
    assert (("a", b"old"),) in story.states(kind, tmp_path)


def test_a_name_is_durable_by_its_directory_alone_or_by_the_journal(tmp_path: Path) -> None:
    story = Story()(Operation.CREATE, FILE, "a")(Operation.WRITE, FILE, data=b"x")(Operation.SYNC, FILE)
    assert story.states(Kind.STRICT, tmp_path) == {(), (("a", b"x"),)}
    assert story.states(Kind.ORDERED, tmp_path) == {(("a", b"x"),)}
    story(Operation.SYNC, ROOT_INODE)
    assert story.states(Kind.STRICT, tmp_path / "synced") == {(("a", b"x"),)}


@KINDS
def test_a_rename_is_whole_or_not_at_all(kind: Kind, tmp_path: Path) -> None:
    story = Story().created(b"old")(Operation.CREATE, 9, "a.tmp")(Operation.WRITE, 9, data=b"new")
    story(Operation.SYNC, 9)(Operation.SYNC, ROOT_INODE)(Operation.RENAME, 9, "a.tmp", "a")
    before, after = (("a", b"old"), ("a.tmp", b"new")), (("a", b"new"),)
    assert story.states(kind, tmp_path) == {before, after}
    assert story(Operation.SYNC, ROOT_INODE).states(kind, tmp_path / "synced") == {after}


def test_names_come_in_any_order_or_in_that_of_the_journal(tmp_path: Path) -> None:
    story = Story()(Operation.CREATE, FILE, "a")(Operation.CREATE, 9, "b")
    assert story.states(Kind.STRICT, tmp_path) == {(), (("a", b""),), (("b", b""),), (("a", b""), ("b", b""))}
    assert story.states(Kind.ORDERED, tmp_path) == {(), (("a", b""),), (("a", b""), ("b", b""))}


def test_what_is_below_a_directory_that_is_lost_is_lost(tmp_path: Path) -> None:
    story = Story()(Operation.MKDIR, DIRECTORY, "d")(Operation.CREATE, FILE, "d/a")(Operation.SYNC, FILE)
    story(Operation.SYNC, DIRECTORY)
    assert story.states(Kind.STRICT, tmp_path) == {(), (("d/a", b""),)}
    assert story.states(Kind.ORDERED, tmp_path) == {(("d/a", b""),)}


@KINDS
def test_later_bytes_may_be_there_without_earlier_ones_and_sectors_are_whole(kind: Kind, tmp_path: Path) -> None:
    story = Story().created(bytes(4 * 512))
    story(Operation.WRITE, FILE, data=b"1" * 1024)(Operation.WRITE, FILE, data=b"2" * 1024, at=1024)
    sectors = {tuple(content[at : at + 512] for at in range(0, 2048, 512))
               for ((_, content),) in story.states(kind, tmp_path)}  # fmt: skip
    assert all(each in (bytes(512), b"1" * 512, b"2" * 512) for state in sectors for each in state)
    torn = (bytes(512), b"1" * 512, bytes(512), b"2" * 512)
    assert torn in sectors and (b"1" * 512,) * 2 + (b"2" * 512,) * 2 in sectors


@KINDS
def test_a_size_may_be_there_without_the_bytes_and_reads_as_zeros(kind: Kind, tmp_path: Path) -> None:
    story = Story().created(b"")(Operation.WRITE, FILE, data=b"x" * 4096)
    contents = {content for ((_, content),) in story.states(kind, tmp_path)}
    assert {b"", bytes(4096), b"x" * 4096} <= contents
    assert all(set(content) <= {0, ord("x")} for content in contents)


@KINDS
def test_what_was_cut_off_never_comes_back_behind_a_new_end(kind: Kind, tmp_path: Path) -> None:
    story = Story().created(b"old!" * 256)(Operation.TRUNCATE, FILE, size=4)(Operation.ALLOCATE, FILE, size=1024)
    assert {content for ((_, content),) in story.states(kind, tmp_path)} == {
        b"old!" * 256, b"old!", b"old!".ljust(1024, b"\0")
    }  # fmt: skip
    story(Operation.SYNC, FILE)
    assert {content for ((_, content),) in story.states(kind, tmp_path / "synced")} == {b"old!".ljust(1024, b"\0")}


@KINDS
def test_a_second_name_is_the_same_file(kind: Kind, tmp_path: Path) -> None:
    story = Story().created(b"x")(Operation.LINK, FILE, "a", "b")(Operation.SYNC, ROOT_INODE)
    story(Operation.REMOVE, FILE, "a")(Operation.SYNC, ROOT_INODE)
    assert story.states(kind, tmp_path) == {(("b", b"x"),)}


def test_a_sync_that_is_only_pretended_is_none(tmp_path: Path) -> None:
    disk = PowerDisk(ROOT, ROOT_INODE, Kind.STRICT, lambda record: record.file == FILE)
    for record in Story().created(b"x").records:
        disk.tell(record)
    disk._write_down(tmp_path / "lost", Random(0), Fate.GONE, Fate.GONE)
    assert (tmp_path / "lost" / "a").read_bytes() == b""


def test_what_the_model_does_not_know_is_refused() -> None:
    disk = PowerDisk(ROOT, ROOT_INODE, Kind.STRICT)
    with pytest.raises(Unmodelled):
        disk.tell(Story()(Operation.UNKNOWN, FILE, "a").records[0])


PROGRAM = """
import os, shutil, subprocess, sys
root = sys.argv[1]
os.chdir(root)
os.mkdir("d"); os.makedirs("d/e/f")
with open("d/a", "wb") as file:
    file.write(b"0123456789"); file.flush(); file.seek(3); file.write(b"xyz"); file.truncate(8)
with open("d/a", "ab") as file:
    file.write(b"appended")
fd = os.open("d/b", os.O_RDWR | os.O_CREAT)
os.posix_fallocate(fd, 0, 9000)
os.pwrite(fd, b"1" * 600, 500); os.pwritev(fd, [b"2" * 10, b"3" * 20], 4090); os.writev(fd, [b"4", b"5"])
other = os.dup(fd); os.write(other, b"6"); os.fsync(other); os.fdatasync(fd)
os.pwritev(fd, [b"7", b"89"], 100, os.RWF_DSYNC)
os.ftruncate(fd, 5000); os.truncate("d/b", 4999)
os.link("d/b", "d/c"); os.rename("d/b", "d/b2"); os.replace("d/a", "d/c2")
here = os.open("d", os.O_RDONLY | os.O_DIRECTORY)
os.mkdir("below", dir_fd=here); os.rename("b2", "b3", src_dir_fd=here, dst_dir_fd=here)
os.fsync(here)
new = os.open("made", os.O_WRONLY | os.O_CREAT | os.O_EXCL, dir_fd=here); os.write(new, b"made")
os.open("made", os.O_WRONLY | os.O_TRUNC, dir_fd=here); os.write(new, b"behind")
open("./d/../kept", "w").write("outside of d")
shutil.copytree("d", "copy", copy_function=lambda a, b: open(b, "wb").write(open(a, "rb").read()))
shutil.rmtree("copy/e"); os.remove("copy/made"); os.unlink("copy/c")
if os.fork() == 0:
    os.write(new, b"of a child"); os._exit(0)
os.wait()
subprocess.run([sys.executable, "-c", "open('by another', 'w').write('process')"], check=True)
open("/dev/null", "w").write("not watched")
try:
    os.mkdir("d")
except FileExistsError:
    pass
"""


@KINDS
def test_the_recorder_sees_whatever_a_program_and_its_children_do(kind: Kind, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    recording = Recording(root, tmp_path / "records")
    recording.mark(before=True)
    watched = environment(**recording.environment)
    subprocess.run([sys.executable, "-c", PROGRAM, str(root)], env=watched, check=True)
    recording.mark(after=True)
    records = read_records(tmp_path / "records")
    assert [records[0].data, records[-1].data] == [b'{"before": true}', b'{"after": true}']
    disk = PowerDisk(root, root.stat().st_ino, kind)
    for record in records:
        disk.tell(record)
    disk.keep_all(tmp_path / "again")
    assert tree(tmp_path / "again") == tree(root)
    assert len(tree(root)) > 10


ENDED = """
import os, signal, sys
os.chdir(sys.argv[1])
for child in range(400):
    end, begun = os.pipe()
    if (pid := os.fork()) == 0:
        while True:
            os.close(os.open(f"{child}.tmp", os.O_WRONLY | os.O_CREAT))
            os.rename(f"{child}.tmp", f"{child}")
            os.write(begun, b".")
            os.unlink(f"{child}")
    os.read(end, 1 + child % 7)
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
    os.close(end); os.close(begun)
    for name in os.listdir():
        os.unlink(name)
"""


def test_a_signal_that_ends_a_process_does_not_come_between_a_change_and_its_record(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    recording = Recording(root, tmp_path / "records")
    subprocess.run([sys.executable, "-c", ENDED, str(root)], env=environment(**recording.environment), check=True)
    disk = PowerDisk(root, root.stat().st_ino, Kind.STRICT)
    for record in read_records(recording.file):
        disk.tell(record)
    disk.keep_all(tmp_path / "kept")
    assert list((tmp_path / "kept").iterdir()) == []


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: path.write_bytes(b"?")])
def test_a_difference_would_be_noticed(harm: Callable[[Path], object], tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "d").mkdir(parents=True)
        (tmp_path / name / "d" / "a").write_bytes(b"!")
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    harm(tmp_path / "two" / "d" / "a")
    assert tree(tmp_path / "one") != tree(tmp_path / "two")


def tree(root: Path) -> dict[str, bytes | None]:
    """Every path, with the bytes of files."""
    return {path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None
            for path in root.rglob("*")}  # fmt: skip
