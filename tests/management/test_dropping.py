"""Management refuses what would drop events of a log, until it is told how many may go: over AMQP and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.core import Event, LogSettings
from headwater.management.statuses import Status
from headwater.storage import Engine

from .asking import CONSUMER_TYPE, LOG_TYPE, Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Engine(tmp_path / "data", maintains=False, reserve_bytes=0) as engine:
        log = engine.create("orders")
        log.append([Event("Placed")] * 10)
        log.register_consumer("spark", "archiver", after=4)
        yield Node(engine)


def refused(answer: Any) -> int:
    assert answer.status == Status.CONFLICT
    assert f"drops_at_most={answer.body['drops']}" in answer.description
    assert answer.body["log"] == "orders"
    return answer.body["drops"]


def test_update_of_a_log_is_refused_with_what_would_go(node: Node) -> None:
    change = {"retentionUntilAcknowledged": True}
    about = {"type": LOG_TYPE, "name": "orders"}
    assert refused(node.ask("UPDATE", change, **about)) == 4
    assert refused(node.ask("UPDATE", change, **about, drops_at_most=3)) == 4
    assert node.ask("UPDATE", change, **about, drops_at_most="4").status == Status.BAD_REQUEST
    assert not node.store.settings_of("orders").retention_until_acknowledged
    assert node.ask("UPDATE", change, **about, drops_at_most=4).status == Status.OK
    assert node.store.settings_of("orders").retention_until_acknowledged


def test_a_consumer_that_is_moved_made_or_taken_away_is_refused_with_what_would_go(node: Node) -> None:
    log = node.store.change("orders", LogSettings(retention_until_acknowledged=True), drops_at_most=4)
    log.register_consumer("alice", "Billing", after=7)
    about = {"type": CONSUMER_TYPE, "name": "orders/spark/archiver"}
    assert refused(node.ask("DELETE", None, **about)) == 3
    assert refused(node.ask("UPDATE", {"acknowledged": 6}, **about)) == 2
    assert node.ask("UPDATE", {"acknowledged": 6}, **about, drops_at_most=2).status == Status.OK
    assert node.ask("DELETE", None, **about, drops_at_most=1).status == Status.NO_CONTENT
    log.unregister_consumer("alice", "Billing")
    assert refused(node.ask("CREATE", {}, **about)) == 10
    assert log.consumers() == []
    assert node.ask("CREATE", {}, **about, drops_at_most=10).status == Status.CREATED
