"""/metrics and /health: names, values, who may look."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headwater.core.access import Grant, OpenGuard, Right
from headwater.core.errors import InvalidInput
from headwater.core.event import Event
from headwater.core.store import LogStore
from headwater.core.watch.threads import Threads
from headwater.futoin.host import Statistics
from headwater.server.front.gate import Gate
from headwater.server.front.health import HEALTH_PATHS, Health
from headwater.server.front.meter import RequestMeter
from headwater.server.monitoring.metrics import Metrics, ServerCollector, scrape
from headwater.server.monitoring.room_metrics import futoin_metrics, storage_metrics, thread_metrics
from headwater.server.users.accounts import Account, AccountDirectory, hash_token, new_token, read_grant, show_grant
from headwater.server.users.guard import AccountGuard
from headwater.storage import Engine
from headwater.storage.memory import MemoryState, MemoryStore
from tests.http.asgi import ask

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def collector(store: LogStore) -> ServerCollector:
    gate = Gate(Health(lambda role: None), HEALTH_PATHS, RequestMeter())
    gate.meter.measure("GET", "/logs/{log}", 200, 0.002)
    return ServerCollector(
        store,
        gate,
        lambda: {"wrong": 3},
        clock=lambda: 101.0,
        rooms=[partial(storage_metrics, store), partial(thread_metrics, Threads())],
    )


def store_with_lag() -> MemoryStore:
    store = MemoryStore(clock=lambda: 100_000)
    log = store.create("orders")
    log.append([Event("Placed", b"x")] * 5)
    log.register_consumer("spark", "archiver", after=2)
    log.register_consumer("bob", "done", after=5)
    return store


def samples(collector: ServerCollector) -> dict[tuple[str, tuple[str, ...]], float]:
    families = text_string_to_metric_families(scrape(collector).decode())
    return {
        (sample.name, tuple(sample.labels.values())): sample.value for family in families for sample in family.samples
    }


def test_logs_consumers_requests_and_refusals_are_shown() -> None:
    found = samples(collector(store_with_lag()))
    assert found["headwater_log_head", ("orders",)] == 5
    assert found["headwater_log_appends_total", ("orders",)] == 1
    assert found["headwater_log_events_appended_total", ("orders",)] == 5
    assert found["headwater_consumer_lag_events", ("archiver", "orders", "spark")] == 3
    assert found["headwater_consumer_lag_seconds", ("archiver", "orders", "spark")] == 1.0
    assert found["headwater_consumer_lag_events", ("done", "orders", "bob")] == 0
    assert found["headwater_consumer_lag_seconds", ("done", "orders", "bob")] == 0.0
    assert found["headwater_refusals_total", ("wrong",)] == 3
    assert found["headwater_http_requests_total", ("GET", "/logs/{log}", "200")] == 1
    assert found["headwater_http_request_seconds_count", ("GET", "/logs/{log}")] == 1


def test_a_log_that_was_closed_meanwhile_is_left_out() -> None:
    store = store_with_lag()
    store.delete("orders")
    assert not any(name.startswith("headwater_log_") for name, _ in samples(collector(store)))
    assert ("headwater_disk_free_bytes", ()) not in samples(collector(store))


def test_the_room_on_the_disk_is_shown(tmp_path: Path) -> None:
    with Engine(tmp_path, maintains=False, reserve_bytes=2**60) as engine:
        found = samples(collector(engine))
        assert found["headwater_disk_free_bytes", ()] > 0
        assert (found["headwater_disk_reserve_bytes", ()], found["headwater_disk_low", ()]) == (2**60, 1)


def test_what_a_log_uses_and_what_was_allocated_ahead_are_told_apart(tmp_path: Path) -> None:
    with Engine(tmp_path, maintains=False, reserve_bytes=0) as engine:
        engine.create("orders").append([Event("Placed", b"x")])
        found = samples(collector(engine))
        assert found["headwater_log_bytes", ("orders",)] < 1000
        assert found["headwater_log_allocated_bytes", ("orders",)] == 64 * 1024


def test_every_metric_is_in_the_reference(tmp_path: Path) -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    names = {family.name for family in text_string_to_metric_families(scrape(collector(store_with_lag())).decode())}
    with Engine(tmp_path, maintains=False) as engine:
        names |= {family.name for family in text_string_to_metric_families(scrape(collector(engine)).decode())}
    assert {name for name in names if f"`{name}" not in text} == set()


def test_metrics_need_any_user_as_soon_as_there_is_one() -> None:
    async def scenario() -> None:
        token = new_token()
        robot = Account("robot", (Grant("none", frozenset({Right.READ})),), tokens=(hash_token(token),))
        guard = AccountGuard(AccountDirectory([robot], MemoryState()), allows_anybody=True)
        closed, open_ = Metrics(guard, collector(MemoryStore())), Metrics(OpenGuard(), collector(MemoryStore()))
        refused = await ask(closed, "/metrics")
        assert (refused.status, refused.headers[b"content-type"]) == (401, b"application/problem+json")
        assert json.loads(refused.body)["type"] == "urn:headwater:problem:unauthenticated"
        assert refused.headers[b"www-authenticate"].startswith(b"Bearer "), "the last of two fields, behind Basic"
        basic = b"Basic " + base64.b64encode(b"robot:wrong password")
        assert (await ask(closed, "/metrics", headers=[(b"authorization", basic)])).status == 401
        assert (await ask(closed, "/metrics", headers=[(b"authorization", b"Digest x")])).status == 401
        assert guard.refusals == {"missing": 1, "wrong": 2, "hasty": 0, "forbidden": 0, "unchecked": 0}
        bearer = f"Bearer {token}".encode()
        assert (await ask(closed, "/metrics", headers=[(b"authorization", bearer)])).status == 200
        assert (await ask(open_, "/metrics")).status == 200

    asyncio.run(scenario())


def test_with_the_setting_only_who_has_the_right_or_manages_the_server_sees_metrics() -> None:
    async def scenario() -> None:
        tokens = {grants: new_token() for grants in ("metrics:*", "manage:*", "all:*", "read:none", "all:orders-*")}
        accounts = [
            Account(f"user{number}", (read_grant(grants),), tokens=(hash_token(token),))
            for number, (grants, token) in enumerate(tokens.items())
        ]
        guard = AccountGuard(AccountDirectory(accounts, MemoryState()), allows_anybody=True)
        as_before, closed = (
            Metrics(guard, collector(MemoryStore()), needs_right=needs_right) for needs_right in (False, True)
        )
        sees: dict[str, int] = {}
        for grants, token in tokens.items():
            shown = [(b"authorization", f"Bearer {token}".encode())]
            assert (await ask(as_before, "/metrics", headers=shown)).status == 200, grants
            answer = await ask(closed, "/metrics", headers=shown)
            sees[grants] = answer.status
        assert sees == {"metrics:*": 200, "manage:*": 200, "all:*": 200, "read:none": 403, "all:orders-*": 403}
        problem = json.loads(answer.body)
        assert (problem["type"], problem["right"], problem["log"]) == (
            "urn:headwater:problem:forbidden",
            "metrics",
            "*",
        )
        assert problem["detail"] == "user 'user4' has no right to see the metrics of the server"
        assert guard.refusals["forbidden"] == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("text", ["metrics:orders-*", "read,metrics:orders"])
def test_the_right_to_see_metrics_is_of_the_whole_server(text: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape("expected metrics:*")):
        read_grant(text)
    assert show_grant(read_grant("metrics:*")) == "metrics:*"
    assert show_grant(read_grant("all:orders-*")) == "all:orders-*", "as it was stored before there was this right"


def test_ready_says_why_not_and_live_is_live() -> None:
    async def scenario() -> None:
        reason: list[str | None] = ["the server is starting"]
        health = Health(lambda role: reason[0])
        unready = await ask(health, "/health/ready")
        assert (unready.status, json.loads(unready.body)["detail"]) == (503, "the server is starting")
        assert (await ask(health, "/health/live")).status == 200
        reason[0] = None
        assert json.loads((await ask(health, "/health/ready")).body) == {"status": "ready"}
        refused = await ask(health, "/health/ready", "POST")
        assert (refused.status, refused.headers[b"allow"]) == (405, b"GET, HEAD")

    asyncio.run(scenario())


def test_futoin_is_shown() -> None:
    counted = Statistics(redeliveries=3, skipped=90)
    counted.calls["futoin.evt.gen.addEvent"] += 2
    counted.errors["InvalidRequest"] += 1
    counted.pushes["reliable"] += 5
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in futoin_metrics(counted)
        for sample in family.samples
    }
    assert found == {
        ("headwater_futoin_calls_total", "futoin.evt.gen.addEvent"): 2,
        ("headwater_futoin_errors_total", "InvalidRequest"): 1,
        ("headwater_futoin_pushes_total", "reliable"): 5,
        ("headwater_futoin_redeliveries_total",): 3,
        ("headwater_futoin_skipped_total",): 90,
    }
