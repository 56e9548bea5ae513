"""The first logs of a home, whoever creates them and wherever that one ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.core import Event
from headwater.core.errors import NotPrimary
from headwater.core.settings import LogSettings
from headwater.server.startup.configured_logs import HOME_KIND, SEEDING, create_logs, seed_home
from headwater.storage import Engine
from headwater.storage.memory import MemoryStore

LOGS = {"orders": {}, "seats": {"partitions": 2}, "once": {}}


class Ending(MemoryStore):
    """One whose server is the primary no more after so many logs."""

    logs_left = 1

    def create(self, name, settings=None, *, is_own=False):
        if not self.logs_left:
            raise NotPrimary(name)
        self.logs_left -= 1
        return super().create(name, settings, is_own=is_own)


def test_who_takes_over_in_the_middle_creates_what_is_left() -> None:
    store = Ending()
    with pytest.raises(NotPrimary):
        seed_home(store, LOGS)
    assert store.names() == ["orders"]
    store.logs_left = 5
    seed_home(store, LOGS)
    assert store.names() == ["once", "orders", "seats"]
    assert store.settings_of("seats") == LogSettings(partitions=2)
    assert store.state.get(HOME_KIND, SEEDING) is None


def test_a_home_that_has_logs_is_left_alone_and_what_was_deleted_stays_so() -> None:
    store = MemoryStore()
    seed_home(store, LOGS)
    store.delete("once")
    seed_home(store, {**LOGS, "more": {}, "orders": {"retention_ms": 1000}})
    assert store.names() == ["orders", "seats"]
    assert store.settings_of("orders") == LogSettings()


def test_the_servers_own_log_may_be_there_before() -> None:
    store = MemoryStore()
    store.create("$system", is_own=True)
    seed_home(store, LOGS)
    assert store.names() == ["$system", "once", "orders", "seats"]


def test_where_no_log_is_configured_nothing_is_written() -> None:
    store = MemoryStore()
    seed_home(store, {})
    assert store.names() == [] and store.state.get(HOME_KIND, SEEDING) is None


def test_what_the_configuration_imposes_is_dropped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Engine(tmp_path / "data", maintains=False, reserve_bytes=0) as store:
        log = store.create("orders")
        log.append([Event("Placed")] * 10)
        log.register_consumer("spark", "archiver", after=4)
        create_logs(store, {"orders": {"retention_until_acknowledged": True}})
        store.maintain()
        assert log.first_retained == 5
    (warning,) = [record for record in caplog.records if record.message == "configured settings drop events"]
    assert warning.levelname == "WARNING"
    assert warning.fields == {"log": "orders", "events": 4, "first": 1, "last": 4, "history": 0}
