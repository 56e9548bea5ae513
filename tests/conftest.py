"""Set-up that every kind of test shares: the profiles of the property tests, and where files lie."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.night import IS_NIGHT, sliced
from tests.seconds import Seconds
from tests.seeds import VARIABLE, seed
from tests.skips import Skips

TESTS = Path(__file__).parent
MEMORY = Path("/dev/shm")
"""Where temporary directories are in memory: a sync there costs nothing, and most tests wait for little else."""
MEMORY_BYTES_MIN = 4 * 2**30
"""So much must be free there; else all directories are where pytest puts them."""
ROOT_VARIABLE = "PYTEST_DEBUG_TEMPROOT"
"""pytest's own: below which directory it makes all others."""
ON_DISK = (
    "benchmarks",
    "crash",
    "load",
    "packaging",
    "spark/archive/test_kill.py",
    "storage/disk/test_system.py",
)
"""What keeps a disk: tests of what a disk does, of processes that are killed, and those that fill gigabytes."""

SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives for seconds, of which it would spend two fifths on code that it soon throws away."""

settings.register_profile(
    "quick",
    max_examples=40,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "long",
    settings.get_profile("quick"),
    max_examples=2000,
    stateful_step_count=80,
    derandomize=False,
    print_blob=True,
)
settings.load_profile(os.environ.get("HEADWATER_TEST_PROFILE", "quick"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of this suite."""
    group = parser.getgroup("headwater")
    group.addoption(
        "--slice", type=float, default=0.0, metavar="S", help="also so many tests marked night that they take S seconds"
    )
    group.addoption("--shuffle", type=int, metavar="SEED", help="files in a random order, and the tests of each")
    group.addoption("--write-seconds", action="store_true", help="write how long tests took to tests/seconds.json")


def pytest_configure(config: pytest.Config) -> None:
    """Have pytest make its directories in memory, where it was not told where, and Spark's JVMs begin quickly."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED_JVM)
    assert all((TESTS / each).exists() for each in ON_DISK), "one of them has moved"
    if os.access(MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN:
        os.environ.setdefault(ROOT_VARIABLE, str(MEMORY))
    config.pluginmanager.register(Seconds(config), "seconds")
    config.pluginmanager.register(Skips(), "skips")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without collecting garbage: next to nothing of what is made then is any."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_report_header() -> str | None:
    """Say how the run is repeated."""
    return None if IS_NIGHT else f"by day some tests are chosen by a seed: {VARIABLE}={seed()} repeats this run"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """By day, leave out what is marked `night`, but for the slice that is asked for."""
    if IS_NIGHT:
        return
    nightly = {item.nodeid for item in items if item.get_closest_marker("night") is not None}
    if left_out := nightly - sliced(sorted(nightly), config.getoption("slice")):
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
        items[:] = [item for item in items if item.nodeid not in left_out]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory on a disk, for what the tests of a module share."""
    with _on_disk(tmp_path_factory.mktemp("disk")) as directory:
        yield directory


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """pytest's; for the tests of `ON_DISK` on a disk."""
    here = request.path.relative_to(TESTS)
    if any(here.is_relative_to(each) for each in ON_DISK):
        with _on_disk(tmp_path) as directory:
            yield directory
    else:
        yield tmp_path


@contextlib.contextmanager
def _on_disk(given: Path) -> Iterator[Path]:
    """The given directory, or where that is in memory, one that Python's `tempfile` makes."""
    if not given.is_relative_to(MEMORY):
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="headwater-tests-") as directory:
        yield Path(directory)


def pytest_sessionfinish() -> None:
    """End what tests of this process shared."""
    if (server := sys.modules.get("tests.homes.postgres_server")) is not None:
        server.close_shared()
