"""Whoever allows larger bodies or events than there can be memory for is told so, and not refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.core.loop.memory import MemoryAccount
from headwater.core.settings import LogSettings
from headwater.core.shared_bytes import MIB
from headwater.core.store import LogStore
from headwater.core.watch.bus import Bus
from headwater.http.body_memory import largest_within
from headwater.server.startup.memory_fit import warn_of_misfit, watch_logs
from headwater.storage import Engine
from headwater.storage.memory import MemoryStore

SMALL = MemoryAccount(40 * MIB)
FITS = largest_within(SMALL.largest)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The settings that warnings named so far; they are forgotten here."""
    found = [record.fields for record in caplog.records if record.name == "headwater.server.memory"]  # type: ignore[attr-defined]
    caplog.clear()
    assert all(each["fits"] == FITS and each["budget"] == "40MiB" for each in found)
    return [each["setting"] for each in found]


@pytest.fixture
def bus() -> Bus:
    return Bus()


@pytest.fixture(params=["memory", "segments"])
def store(request: pytest.FixtureRequest, tmp_path: Path, bus: Bus) -> Iterator[LogStore]:
    store = MemoryStore(bus=bus) if request.param == "memory" else Engine(tmp_path, bus=bus)
    yield store
    store.close()


def test_a_setting_of_the_server_that_never_fits_is_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for allowed in (FITS, FITS + 1):
        warn_of_misfit("http.body_bytes_max", allowed, SMALL)
    assert warned(caplog) == ["http.body_bytes_max"]


def test_logs_whose_events_never_fit_are_named_whenever_they_come(
    store: LogStore, bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    large, small = LogSettings(event_bytes_max=FITS + 1), LogSettings(event_bytes_max=FITS)
    store.create("early", large)
    store.create("fitting", small)
    store.create("$system", large, is_own=True)
    stop = watch_logs(bus, store, SMALL)
    assert warned(caplog) == ["logs.early.event_bytes_max"]
    assert store.create("late", large).settings == large
    store.create("small", small)
    assert warned(caplog) == ["logs.late.event_bytes_max"]
    store.change("small", large)
    store.change("late", small)
    assert warned(caplog) == ["logs.small.event_bytes_max"]
    stop()
    store.create("later", large)
    assert warned(caplog) == []
