"""What happens in the server, as its users see it: in `$system`, in `/metrics`, on stderr, and over a restart."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.amqp.client import Client
from headwater.amqp.protocol.conditions import AmqpError
from headwater.client import connect
from headwater.core import Bus, LogSettings, NotificationType, Query
from headwater.core.errors import DiskFull, EventLogError, StorageCorrupted
from headwater.management import CATALOG
from headwater.server.config.settings import Management
from headwater.server.monitoring import notifications
from headwater.server.monitoring.notifications import LINES, Notifications, logged_types, write_line
from headwater.server.monitoring.room_metrics import notification_metrics
from headwater.storage.memory import MemoryStore
from tests.waiting import eventually

from ..running import SILENCE_S_MAX, RunningServer, headwater

DUPLICATES = b'{"events": [{"type": "Placed", "id": "1", "tags": ["order:1"], "data": "%b"}]}'
FAILING = (
    b'{"events": [{"type": "Placed", "tags": ["order:1"], "data": ""}],'
    b' "condition": {"fail_if_events_match": {"items": [{"types": ["Placed"]}]}}}'
)


def history(server: RunningServer, **headers: str) -> list[dict[str, Any]]:
    """What `$system` has."""
    status, text = server.ask("/logs/$system/read", b'{"query": "all"}', headers)
    assert status == 200, text
    events = [json.loads(line)["event"] for line in text.splitlines()]
    return [json.loads(event["data"]) for event in events]


def types(told: list[dict[str, Any]]) -> list[str]:
    return [event["eventType"].removeprefix("io.headwater.") for event in told]


def wait_for(server: RunningServer, type: str) -> dict[str, Any]:
    """The last of a type in `$system`, once there is one."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        found[:] = [event for event in history(server) if event["eventType"] == f"io.headwater.{type}"]
        return bool(found)

    eventually(is_there, lambda: f"{type}: {history(server)}")
    return found[-1]


@pytest.mark.parametrize("storage", ["disk", "memory"])
def test_what_happens_is_kept_and_can_be_read_like_any_log(tmp_path: Path, storage: str) -> None:
    arguments = ("--management-keep", "--management-lag-events", "2", "--storage", storage, "--log", "orders")
    with RunningServer(*arguments, cwd=tmp_path) as server:
        told = wait_for(server, "server.started")
        assert told["version"] and told["logs"] == 2
        assert [event["log"] for event in history(server) if types([event]) == ["log.created"]] == ["orders"]
        for data in (b"", b"QQ==", b"Qg=="):
            server.ask("/logs/orders/append", DUPLICATES % data)
        for _ in range(3):
            assert server.ask("/logs/orders/append", FAILING)[0] == 409
        rejected, failed = wait_for(server, "append.rejected"), wait_for(server, "condition.failed")
        assert rejected["log"] == failed["log"] == "orders"
        assert sum(event["count"] for event in history(server) if types([event]) == ["condition.failed"]) == 3
        with connect(server.url) as client:
            client.log("orders").register_consumer("spark", "archiver", after=0)
        assert wait_for(server, "consumer.registered")["component"] == "archiver"
        for _ in range(3):
            server.ask("/logs/orders/append", b'{"events": [{"type": "Placed", "data": ""}]}')
        assert wait_for(server, "consumer.lagging")["lagEvents"] > 2
        metrics = server.ask("/metrics")[1]
        name = "headwater_management_events_total"
        assert f'{name}{{type="io.headwater.consumer.lagging"}} 1.0' in metrics
        assert f'{name}{{type="io.headwater.log.created"}} 1.0' in metrics
        assert f'{name}{{type="io.headwater.log.deleted"}} 0.0' in metrics
        assert 'message="consumer lags" log=orders' in server.errors
        assert 'message="log created" log=orders' in server.errors
        assert server.terminate() == 0
        assert "message=stopping requests=0" in server.errors and "level=error" not in server.errors


def test_the_history_outlives_a_restart_with_the_last_stop_in_it(tmp_path: Path) -> None:
    arguments = ("--management-keep",)
    with RunningServer(*arguments, cwd=tmp_path) as server:
        wait_for(server, "server.started")
        assert server.terminate() == 0
    with RunningServer(*arguments, "--management-keep-retention-ms", "1h", cwd=tmp_path) as server:
        eventually(lambda: types(history(server)).count("server.started") == 2)
        told = [type for type in types(history(server)) if type.startswith("server.")]
        assert told == ["server.started", "server.stopping", "server.started"]
        with connect(server.url) as client:
            found = client.log("$system").read(Query.where(types=["io.headwater.server.stopping"]))
            assert [json.loads(event.data)["requests"] for event in found] == [0]
        settings = json.loads(server.ask("/logs/$system")[1])["settings"]
        assert settings["retention_ms"] == 3_600_000
        assert server.terminate() == 0
    checked = headwater("check", "--data", "headwater-data", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_consumer_that_was_behind_before_a_restart_is_told_though_nobody_needs_its_log(tmp_path: Path) -> None:
    with RunningServer("--log", "orders", cwd=tmp_path) as server:
        with connect(server.url) as client:
            client.log("orders").register_consumer("spark", "archiver", after=0)
        server.ask("/logs/orders/append", DUPLICATES % b"")
        assert server.terminate() == 0
    with RunningServer("--management-keep", "--management-lag-ms", "1", cwd=tmp_path) as server:
        told = wait_for(server, "consumer.lagging")
        assert (told["log"], told["owner"], told["lagEvents"]) == ("orders", "spark", 1)
        assert server.terminate() == 0


def test_what_happens_until_the_end_is_told_and_kept(tmp_path: Path) -> None:
    arguments = ("--management-keep", "--log", "orders")
    with RunningServer(*arguments, cwd=tmp_path) as server, Client(server.further_url("amqp")) as client:
        receiver = client.receiver("$events")
        server.ask("/logs/orders/append", DUPLICATES % b"")
        eventually(lambda: "link.attached" in types(history(server)))
        for _ in range(5):
            assert server.ask("/logs/orders/append", FAILING)[0] == 409
        server.process.send_signal(signal.SIGTERM)
        told: list[Any] = []
        with pytest.raises(AmqpError):
            while True:
                told += [delivery.message.application_properties for delivery in receiver.take(1)]
        assert types(told)[-1] == "server.stopping"
        assert server.process.wait(SILENCE_S_MAX) == 0
    with RunningServer(*arguments, cwd=tmp_path) as server:
        kept = [event for event in history(server) if types([event]) == ["condition.failed"]]
        assert sum(event["count"] for event in kept) == 5


def test_nobody_but_the_server_writes_its_log_and_only_who_manages_it_reads_it(tmp_path: Path) -> None:
    for name, grant in (("root", "all:*"), ("reader", "read:*"), ("writer", "append,manage:orders")):
        added = headwater(
            "user", "add", name, "--grant", grant, "--password-stdin", cwd=tmp_path, stdin="correct horse\n"
        )
        assert added.returncode == 0, added.stderr
    with RunningServer("--management-keep", "--log", "orders", cwd=tmp_path) as server:
        root, reader, writer = (_basic(name) for name in ("root", "reader", "writer"))
        assert types(history(server, **root))[0] == "log.created"
        event = b'{"events": [{"type": "Placed", "tags": ["a:b"], "data": ""}]}'
        assert server.ask("/logs/$system/append", event, root)[0] == 403
        for headers in (reader, writer):
            assert server.ask("/logs/$system/read", b'{"query": "all"}', headers)[0] == 403
        assert "$system" in server.ask("/logs", None, root)[1]
        assert "$system" not in server.ask("/logs", None, reader)[1]
        assert server.ask("/logs/orders/read", b'{"query": "all"}', {"authorization": "Basic eDp5"})[0] == 401
        eventually(lambda: "authentication.failed" in types(history(server, **root)))
        (failed,) = [event for event in history(server, **root) if types([event]) == ["authentication.failed"]]
        assert (failed["reason"], failed["user"], failed["peer"]) == ("wrong", "x", "127.0.0.1")
        assert 'message="login refused" reason=wrong user=x peer=127.0.0.1' in server.errors


def test_nothing_is_kept_unless_it_is_asked_for(tmp_path: Path) -> None:
    with RunningServer(cwd=tmp_path) as server:
        assert server.ask("/logs/$system/read", b'{"query": "all"}')[0] == 404
        assert "message=started" in server.errors
        assert server.terminate() == 0


def _basic(name: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{name}:correct horse".encode()).decode()}


def test_every_type_has_a_line() -> None:
    assert LINES.keys() == CATALOG.keys() == set(NotificationType)


@pytest.mark.parametrize(
    ("level", "includes", "excludes"),
    [
        (logging.WARNING, NotificationType.DISK_LOW, NotificationType.LOG_CREATED),
        (logging.INFO, NotificationType.LINK_DETACHED, NotificationType.LINK_ATTACHED),
        (logging.DEBUG, NotificationType.LINK_ATTACHED, None),
    ],
)
def test_lines_are_written_of_the_types_of_the_configured_level(
    level: int, includes: NotificationType, excludes: NotificationType | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(level, "headwater")
    assert includes in logged_types() and excludes not in logged_types()


def test_what_ends_with_an_error_is_told_at_info_and_without_one_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headwater")
    bus = Bus()
    bus.subscribe(write_line, logged_types())
    bus.emit(NotificationType.CONNECTION_CLOSED, peer="10.0.0.1")
    bus.emit(NotificationType.CONNECTION_CLOSED, peer="10.0.0.1", condition="amqp:internal-error")
    (record,) = caplog.records
    assert record.name == notifications.events_logger.name and record.levelno == logging.INFO
    assert record.fields == {"peer": "10.0.0.1", "condition": "amqp:internal-error"}  # type: ignore[attr-defined]


def run_within(work: Callable[[Notifications, MemoryStore], Any], settings: Management) -> Any:
    async def scenario() -> Any:
        notifications = Notifications(settings)
        store = MemoryStore(bus=notifications.bus)
        await notifications.keep(store)
        await notifications.start(store)
        try:
            return await asyncio.to_thread(work, notifications, store)
        finally:
            await notifications.stop()

    return asyncio.run(scenario())


def test_a_look_that_fails_does_not_end_looking(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notifications, "LOOK_S", 0.005)
    looks = []

    def look(self: object) -> None:
        looks.append(time.monotonic())
        raise RuntimeError("broken look")

    monkeypatch.setattr("headwater.management.notifications.summaries.Summaries.look", look)
    run_within(lambda notifications, store: eventually(lambda: len(looks) > 2), Management())
    assert "broken look" in caplog.text


@pytest.mark.parametrize("error", [StorageCorrupted("$system", "it is damaged", "restore it"), DiskFull("data", 1, 2)])
def test_a_log_of_what_happens_that_cannot_be_opened_keeps_nothing_and_nobody_from_being_served(
    error: EventLogError, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(MemoryStore, "create", failing)
    names = run_within(lambda notifications, store: store.names(), Management(keep=True))
    assert names == [] and "cannot store the notifications" in caplog.text


def test_the_log_of_what_happens_gets_the_retention_that_is_configured() -> None:
    settings = Management(keep=True, keep_retention_ms=5000, keep_retention_bytes=2**20)
    found = run_within(lambda notifications, store: store.open("$system").settings, settings)
    assert found == LogSettings(retention_ms=5000, retention_bytes=2**20)


def test_every_type_is_counted_from_zero() -> None:
    bus = Bus()
    bus.emit(NotificationType.LOG_CREATED, log="orders")
    (family,) = notification_metrics(bus)
    counts = {sample.labels["type"]: sample.value for sample in family.samples}
    assert counts.keys() == {type.value for type in NotificationType}
    assert sum(counts.values()) == counts["io.headwater.log.created"] == 1
