"""What is measured for the console: how far behind the registered consumers of all open logs are."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.core import Event
from headwater.core.following import Lag
from headwater.server import measuring
from headwater.server.measuring import Measuring
from headwater.storage.memory import MemoryStore


def of(store: MemoryStore, now_s: float) -> Measuring:
    nothing: Any = None
    return Measuring(store, nothing, nothing, dict, dict, lambda: now_s)


def test_the_lag_of_each_consumer_is_measured_by_its_name_and_the_furthest_behind_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    for name, events in (("orders", 3), ("audit", 1)):
        store.create(name)
        log = store.open(name)
        log.append([Event("T", b"")] * events)
        log.register_consumer("billing", "a/b,c%", after=0)
    log = store.open("orders")
    log.register_consumer("ship", "robot", after=3)
    recorded_at = next(iter(log.read())).recorded_at
    lags = of(store, recorded_at / 1000 + 2.5).lags()
    assert list(lags) == ["orders/billing/a%2Fb%2Cc%25", "audit/billing/a%2Fb%2Cc%25", "orders/ship/robot"]
    assert lags["orders/billing/a%2Fb%2Cc%25"] == Lag(3, 2500)
    assert lags["orders/ship/robot"] == Lag(0, 0)
    monkeypatch.setattr(measuring, "CONSUMERS_MAX", 1)
    assert list(of(store, 0.0).lags()) == ["orders/billing/a%2Fb%2Cc%25"]
