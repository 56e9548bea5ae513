"""Power cuts of a server that speaks every protocol: what was acknowledged is there, whatever was not synced.

`POWER_STATES=5000` for more states; `POWER_RECORD=FOLDER POWER_SEED=7` for one of a run that was kept, and
`POWER_KEEP=DIRECTORY` to look at what was left.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.storage.disk.system import Disk
from tests.night import night

from . import workload
from .disk import Kind, PowerDisk
from .recording import SYNCS, Operation, Record, read_records
from .states import Cutter, State, check_all, cutter, workers
from .test_disk import tree

STATES = int(os.environ.get("POWER_STATES", "300"))
SEEDS: Sequence[int] = [int(os.environ["POWER_SEED"])] if "POWER_SEED" in os.environ else range(STATES // len(Kind))
SEEDS_OF_A_SECOND_CUT, SECOND_CUTS = 50, 8
"""One of so many states is repaired, and so often the power fails meanwhile."""
SEEDS_OF_A_SERVER = 150
"""One of so many is served by a whole server."""
KINDS = pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.value)
pytestmark = pytest.mark.timeout(300 + STATES)


class Recorded(NamedTuple):
    """A run, when it is over."""

    folder: Path

    @property
    def root(self) -> Path:
        """What was recorded is below that."""
        return self.folder / "root"

    @property
    def file(self) -> Path:
        """The record."""
        return self.folder / "records"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """One run, for all workers of pytest-xdist."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "power"
    if (kept := os.environ.get("POWER_RECORD")) is not None:
        return Recorded(Path(kept))
    folder.mkdir(exist_ok=True)
    run = Recorded(folder.resolve())
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            run.root.mkdir()
            workload.run(folder / "folder", run.root, run.file)
            (folder / "done").touch()
    return run


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with workers() as pool:
        yield pool


@pytest.fixture
def cuts(recorded: Recorded, tmp_path: Path) -> Cutter:
    return cutter(recorded.file, recorded.root, recorded.root.stat().st_ino, tmp_path)


@KINDS
def test_the_record_says_all_that_was_done(recorded: Recorded, kind: Kind, tmp_path: Path) -> None:
    """Told from the beginning, the disk holds byte for byte what the real directory holds."""
    disk = PowerDisk(recorded.root, recorded.root.stat().st_ino, kind)
    records = read_records(recorded.file)
    for record in records:
        disk.tell(record)
    disk.keep_all(tmp_path / "again")
    assert tree(tmp_path / "again") == tree(recorded.root)
    mapped = {Path(record.path).name for record in records if record.operation is Operation.MAP}
    assert mapped == {"state.sqlite-shm"}, "what is written through memory is not seen; of this file nothing is kept"


SEEN = {
    "a segment begins": (Operation.RENAME, r"/orders\.\w+/log/prepared-\w+\.tmp$"),
    "a segment is cut to what is used": (Operation.TRUNCATE, r"/log/\d+\.log$"),
    "a segment is sealed": (Operation.SYNC, r"\.places\.\d+\.tmp$"),
    "its postings become history": (Operation.LINK, r"/trimmed\.\w+/idx/.*\.postings$"),
    "an operator's trim drops segments": (Operation.REMOVE, r"/trimmed\.\w+/log/\d+\.log$"),
    "retention drops segments": (Operation.REMOVE, r"/rolling\.\w+/log/\d+\.log$"),
    "a log is deleted": (Operation.REMOVE, r"/brief-\w\.\w+$"),
    "a batch is frozen": (Operation.RENAME, r"/staged/.*/MANIFEST\.json.*tmp$"),
    "rows are staged": (Operation.RENAME, r"/staged/.*\.tmp$"),
    "rows are staged as segments": (Operation.RENAME, r"/staged/.*\.segment\.tmp$"),
    "they get their heads": (Operation.WRITE, r"/staged/.*\.segment$"),
    "they are taken into the log": (Operation.LINK, r"/staged/.*\.segment$"),
    "and become segments": (Operation.RENAME, r"/log/adopted-\w+\.tmp$"),
    "the table of writers is written": (Operation.RENAME, r"/WRITERS\.json.*tmp$"),
    "the state is written": (Operation.WRITE, r"/journal/log/\d+\.log$"),
    "and its image": (Operation.WRITE, r"/state\.sqlite-wal$"),
    "and brought together": (Operation.WRITE, r"/state\.sqlite$"),
}


@pytest.mark.parametrize("what", SEEN)
def test_the_record_has_what_is_to_be_cut(recorded: Recorded, what: str) -> None:
    operation, pattern = SEEN[what]
    found = [each for each in read_records(recorded.file) if each.operation is operation]
    assert any(re.search(pattern, record.path) for record in found)


def test_small_commits_are_cut_within_their_one_call(recorded: Recorded) -> None:
    if not Disk().writes_durably(recorded.root):
        pytest.skip("the file system of the tests writes and syncs in two calls")
    synced = [record.path for record in read_records(recorded.file) if record.operation is Operation.WRITESYNC]
    for pattern in (r"/logs/.*/log/\d+\.log$", r"/journal/log/\d+\.log$"):
        assert sum(re.search(pattern, path) is not None for path in synced) > 20


@KINDS
def test_what_was_acknowledged_survives_a_power_cut(
    pool: ProcessPoolExecutor, recorded: Recorded, kind: Kind, tmp_path: Path
) -> None:
    assert faults(recorded, check_all(pool, recorded.file, recorded.root, tmp_path, kind, SEEDS)) == ""


@KINDS
def test_and_another_one_while_the_server_recovers(
    pool: ProcessPoolExecutor, recorded: Recorded, kind: Kind, tmp_path: Path
) -> None:
    found = check_all(pool, recorded.file, recorded.root, tmp_path, kind, SEEDS[::SEEDS_OF_A_SECOND_CUT], SECOND_CUTS)
    assert faults(recorded, found) == ""


@KINDS
def test_every_protocol_serves_what_a_power_cut_has_left(recorded: Recorded, cuts: Cutter, kind: Kind) -> None:
    assert faults(recorded, [cuts.whole(kind, seed) for seed in SEEDS[::SEEDS_OF_A_SERVER]]) == ""


def _syncs(pattern: str) -> Callable[[Record], bool]:
    wanted = re.compile(pattern)
    return lambda record: record.operation in SYNCS and wanted.search(record.path) is not None


BROKEN = {
    "segments are not synced": (r"/logs/.*/log/\d+\.log$", list(Kind), "not there|in place of a frame|damaged"),
    "segments are not synced as they are made": (r"/logs/.*/prepared-.*tmp$", [Kind.STRICT], "not there|check|Storage"),
    "the directory of segments is not synced": (r"/logs/.*/log$", [Kind.STRICT], "not there|gone|of a frame|damaged"),
    "no directory is synced": (r"/(data|logs|log|idx|history|root|\w[\w-]*\.[0-9a-f]{8})$", [Kind.STRICT], "."),
    "the journal is not synced": (r"/journal/log/\d+\.log$", list(Kind), "log|user|subscription|consumer|state"),
    "segments are not synced as they are taken": (r"/staged/.*\.segment$", list(Kind), "not there|check|Storage"),
    "staged rows are not synced": (r"/staged/.*\.arrow\.\w+\.tmp$|/staged/.*\.tmp$", list(Kind), "stage|unreadable"),
}  # fmt: skip


ON_ANY_DISK = next(iter(BROKEN))
"""By day the others are left out on a strict disk alone, which keeps the least."""


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        pytest.param(what, kind, marks=() if kind is Kind.STRICT or what == ON_ANY_DISK else night)
        for what, (_, kinds, _) in BROKEN.items() for kind in kinds
    ],
    ids=lambda value: value.value if isinstance(value, Kind) else value.replace(" ", "-"),
)  # fmt: skip
def test_a_sync_that_is_left_out_would_be_noticed(cuts: Cutter, what: str, kind: Kind) -> None:
    pattern, _, expected = BROKEN[what]
    cuts.only_near("/staged/" if "staged" in pattern else ".")
    found = next((state for state in cuts.states(kind, range(500), _syncs(pattern)) if state.faults), None)
    assert found is not None, "nothing was noticed"
    assert re.search(expected, str(found.faults)), found


def faults(recorded: Recorded, states: Iterable[State]) -> str:
    """All states that are not as they should be, and how to make them again."""
    return "\n".join(f"POWER_RECORD={recorded.folder} {state}" for state in states if state.faults)
