"""Fixtures of the contract: a bench of each kind, with a clock that the test sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.core import EventLog, LogSettings

from ..night import IS_NIGHT
from ..seeds import seed
from .choosing import Candidate, chosen
from .kinds import KINDS, Bench, kinds

LogFactory = Callable[..., EventLog]
HERE = Path(__file__).parent


class ManualClock:
    """A clock in ms that stands still until it is set."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run whatever uses a bench on every kind that is there, or on those that the marker `on` selects."""
    if "kind" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("on")
        metafunc.parametrize("kind", kinds(**(marker.kwargs if marker else {})))


@pytest.hookimpl(trylast=True)  # of what is left by `-k`, so that a test asked for by its name runs
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """By day, leave out what the seed does not choose."""
    if IS_NIGHT:
        return
    candidates = [each for each in map(_candidate, items) if each is not None]
    unchosen = {each.name for each in candidates} - chosen(candidates, seed())
    if unchosen:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in unchosen])
        items[:] = [item for item in items if item.nodeid not in unchosen]


def _candidate(item: pytest.Item) -> Candidate | None:
    """None: it is of another folder, or of no kind of log."""
    if not item.path.is_relative_to(HERE) or not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return None
    kind = item.callspec.params.get("kind")
    return Candidate(item.nodeid, kind) if isinstance(kind, str) else None


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def bench(kind: str, tmp_path: Path, clock: ManualClock) -> Iterator[Bench]:
    made = KINDS[kind][0](tmp_path, clock)
    yield made
    made.close()


@pytest.fixture
def log_factory(bench: Bench) -> LogFactory:
    """Makes a log: `log_factory()`, `log_factory("other")`, `log_factory(partitions=4)`."""

    def make(name: str = "orders", **settings: object) -> EventLog:
        return bench.create(name, LogSettings(**settings))  # type: ignore[arg-type]

    return make


@pytest.fixture
def log(log_factory: LogFactory) -> EventLog:
    """A log of default settings."""
    return log_factory()
