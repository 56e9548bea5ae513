"""Lag counts events wherever it is shown. A restored log leaves out 10^12 numbers, which are nobody's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.core import Bus, Event, LogSettings
from headwater.core.followers import Follower, FollowerKind, Lag, lag_of
from headwater.management.notifications.consumers import ConsumerWatch
from headwater.storage import Engine, backup, restore
from headwater.storage.catalog.directories import RESTORE_JUMP
from tests.waiting import eventually

from .running import RunningServer, headwater


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Engine]:
    """A log of six events, restored, with two more; of consumer `ann Billing` six of them wait."""
    with Engine(tmp_path / "data", maintains=False) as engine:
        log = engine.create("orders", LogSettings(partitions=2))
        log.append([Event("Placed")] * 6, partition=1)
        log.register_consumer("ann", "Billing", after=2)
    backup(tmp_path / "data", tmp_path / "saved")
    restore(tmp_path / "saved", tmp_path / "again")
    with Engine(tmp_path / "again", maintains=False) as engine:
        assert engine.open("orders").append([Event("Placed")] * 2, partition=1).first == RESTORE_JUMP + 1
        yield engine


def test_a_gap_counts_nothing_in_any_kind_of_lag(restored: Engine) -> None:
    log = restored.open("orders")
    watch = ConsumerWatch(Bus(), lambda: [log], wall_clock=lambda: 0)
    for after, upto, events in ((0, None, 8), (2, None, 6), (6, None, 2), (RESTORE_JUMP, None, 2), (1, 4, 3)):
        for partition in (None, 1):
            follower = Follower(log, FollowerKind.GROUP, "workers", "1", after, partition=partition, upto=upto)
            assert lag_of(log, after, 0, partition=partition, upto=upto) == watch.lag(follower) == Lag(events, 0)
        assert lag_of(log, after, 0, partition=0, upto=upto) == Lag(0, 0), "nothing of that partition waits"
    log.trim(2)
    log.reset_consumer("ann", "Billing", 0)
    assert lag_of(log, 0, 0) == Lag(7, 0), "what was trimmed waits for nobody"


def test_every_page_metric_and_command_says_the_same(restored: Engine, tmp_path: Path) -> None:
    restored.close()
    with RunningServer("--data", "again", cwd=tmp_path) as server:
        shown = json.loads(server.ask("/management/consumer/orders%2Fann%2FBilling")[1])
        listed = headwater("consumers", "list", "orders", "--json", "--url", server.url, cwd=tmp_path)
        metrics = server.ask("/metrics")[1]
        assert shown["lag"] == 6
        assert [each["behind"] for each in json.loads(listed.stdout)] == [6]
        assert 'headwater_consumer_lag_events{component="Billing",log="orders",owner="ann"} 6.0' in metrics
        name = "orders/ann/Billing/lag_events"
        eventually(lambda: name in json.loads(server.ask("/console/history")[1])["series"])
        history = json.loads(server.ask(f"/console/history?series={name}")[1])["series"][name]
        assert {each for each in history if each is not None} == {6}
