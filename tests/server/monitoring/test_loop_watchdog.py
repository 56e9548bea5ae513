"""The watchdog: the lag is measured, and who held the loop is named, seen from without and by the note."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import headwater
from headwater.core.loop.scheduler import LoopActivity
from headwater.core.watch.bus import Bus, Notification
from headwater.core.watch.notification_types import NotificationType
from headwater.server.front.gate import Gate
from headwater.server.front.meter import RequestMeter
from headwater.server.monitoring.loop_watchdog import HELD_S, TICK_S, LoopHold, LoopWatchdog, of_frame, of_note
from headwater.server.monitoring.metrics import ServerCollector, scrape
from headwater.server.monitoring.room_metrics import loop_metrics
from headwater.storage.memory import MemoryStore

from ...waiting import eventually
from ..running import RunningServer

PACKAGE = Path(headwater.__file__).parent


class Watched:
    """A watchdog whose clock is set by hand, and what it tells."""

    def __init__(self) -> None:
        self.now, self.used = 100.0, 5.0
        self.bus, self.activity = Bus(), LoopActivity()
        self.told: list[Notification] = []
        self.bus.subscribe(self.told.append)
        self.watchdog = LoopWatchdog(self.bus, self.activity, clock=lambda: self.now, used=lambda: self.used)

    def tick(self, lag_s: float, share: float = 1.0) -> None:
        """A tick that comes so late; the process had a CPU for that share of it."""
        self.now = self.watchdog._due + lag_s
        self.used += lag_s * share
        self.watchdog.tick()


def code_of(path: str, *functions: str, last: str) -> dict[str, Any]:
    """Functions that are said to be in that file of the package, each of which calls the next."""
    lines = [f"def {name}(then):\n    return {called}(then)" for name, called in pairwise(functions)]
    source = "\n".join([*lines, f"def {functions[-1]}(then):\n    return {last}"])
    namespace: dict[str, Any] = {}
    exec(compile(source, str(PACKAGE / path), "exec"), namespace)
    return namespace


def frame_in(path: str, *functions: str, through: Callable[[Callable[[], Any]], Any] | None = None) -> FrameType:
    """A frame below those functions, which are called by `through`."""
    namespace = code_of(path, *functions, last="then()")
    call = lambda: namespace[functions[0]](lambda: sys._getframe())  # noqa: E731
    frame = call() if through is None else through(call)
    assert isinstance(frame, FrameType)
    return frame


def test_every_tick_is_measured() -> None:
    watched = Watched()
    for lag_s in (0.0, 0.002, 0.03, 0.3):
        watched.tick(lag_s)
    lags = watched.watchdog.lags
    assert (sum(lags.buckets), lags.sum_s) == (4, pytest.approx(0.332))
    counts = dict(lags.cumulated())
    assert (counts["0.001"], counts["0.0025"], counts["0.05"], counts["10.0"]) == (1, 2, 3, 4)


def test_what_holds_the_loop_is_told_with_the_note_where_nothing_was_seen() -> None:
    watched = Watched()
    watched.activity.what = "amqp", "receiver of orders"
    watched.tick(HELD_S - 0.01)
    assert watched.told == []
    watched.tick(0.25)
    (told,) = watched.told
    assert told.type is NotificationType.SERVER_LOOP_HELD
    assert {**told.attributes, "time": 0} == {
        "eventType": told.type.value, "time": 0, "heldMs": 250, "room": "amqp",
        "kind": "receiver of orders", "untold": 0,
    }  # fmt: skip


def test_a_lag_is_not_told_of_a_process_that_did_not_run() -> None:
    watched = Watched()
    watched.tick(0.5, share=0.1)
    assert watched.told == [] and watched.watchdog.lags.sum_s == pytest.approx(0.5)
    watched.tick(0.5, share=0.3)
    assert [each.attributes["heldMs"] for each in watched.told] == [500]


def test_an_idle_server_on_a_machine_without_a_free_cpu_blames_nobody(tmp_path: Path) -> None:
    def lags() -> float:
        """How many ticks came more than 100 ms late."""
        counted = {
            sample.labels.get("le"): sample.value
            for family in text_string_to_metric_families(server.ask("/metrics")[1])
            if family.name == "headwater_loop_lag_seconds"
            for sample in family.samples
        }
        return counted["+Inf"] - counted["0.1"]

    with RunningServer("--storage", "memory", cwd=tmp_path) as server:
        before = lags()
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(3 * HELD_S)  # so long it does not get a CPU
        server.process.send_signal(signal.SIGCONT)
        eventually(lambda: lags() > before)
        assert "event loop held" not in server.errors


def test_it_tells_once_a_second_and_counts_the_others() -> None:
    watched = Watched()
    for _ in range(6):
        watched.tick(0.15)
    watched.now += 1
    watched.watchdog._due = watched.now
    watched.tick(0.15)
    assert [each.attributes["untold"] for each in watched.told] == [0, 5]


def test_a_request_is_named_by_method_and_route_and_not_by_its_path() -> None:
    scope = {"type": "http", "method": "POST", "path": "/logs/secret/append", "route": "/logs/{log}/append"}
    assert of_note(scope) == LoopHold("http", "POST /logs/{log}/append")
    assert of_note({"type": "websocket", "path": "/futoin/x"}) == LoopHold("http", "WEBSOCKET unmatched")
    assert of_note(None) == LoopHold("unknown", "unknown")


def test_the_innermost_room_that_works_for_no_other_is_named() -> None:
    frame = frame_in("amqp/streams/consumer.py", "_turn", "_send_next")
    inner = frame_in("storage/read/reader.py", "page", through=lambda call: code_run("cne/feed.py", "_take", call))
    held = of_frame(frame, ("amqp", "receiver of orders"))
    assert held == LoopHold("amqp", "receiver of orders", "amqp/streams/consumer.py:4 _send_next")
    assert of_frame(inner, ("amqp", "receiver of orders")) == LoopHold(
        "cne", "cne/feed.py _take", "storage/read/reader.py:2 page"
    )


def test_where_only_a_room_that_works_for_others_is_seen_the_note_names_for_whom() -> None:
    noted = "amqp", "receiver of orders"
    frame = frame_in("core/loop/scheduler.py", "_run", through=lambda call: code_run("server/app.py", "serve", call))
    assert of_frame(frame, noted) == LoopHold(*noted, "core/loop/scheduler.py:2 _run")
    assert of_frame(frame, None) == LoopHold("core", "core/loop/scheduler.py _run", "core/loop/scheduler.py:2 _run")
    assert of_frame(frame_in("server/app.py", "serve"), noted) is None


def code_run(path: str, function: str, call: Callable[[], Any]) -> Any:
    """Run something in a function that is said to be in that file."""
    return code_of(path, function, last="then()")[function](call)


def test_a_request_that_is_on_the_stack_is_named_whatever_was_noted_since() -> None:
    found: list[LoopHold | None] = []

    async def handle(scope: Any, receive: Any, send: Any) -> None:
        scope["route"] = "/logs/{log}/read"
        found.append(code_run("dcb/reads/read.py", "read", lambda: of_frame(sys._getframe(), ("amqp", "frames"))))

    async def scenario() -> None:
        gate = Gate(handle, (), RequestMeter())
        gate.open(handle)
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/logs/l/read", "headers": headers}
        await gate(scope, None, None)  # type: ignore[arg-type]

    asyncio.run(scenario())
    assert found == [LoopHold("dcb", "POST /logs/{log}/read", "dcb/reads/read.py:2 read")]


def test_the_thread_sees_who_holds_a_loop_and_ends_with_the_watchdog() -> None:
    told: list[Notification] = []
    used_s = 0.0  # by this process: a busy machine, too, makes ticks late

    async def scenario() -> None:
        bus = Bus()
        bus.subscribe(told.append)
        watchdog = LoopWatchdog(bus, LoopActivity(), used=lambda: used_s)
        watchdog.start()
        await asyncio.sleep(2 * TICK_S)

        def hold() -> None:
            nonlocal used_s
            eventually(lambda: watchdog._held is not None)
            watchdog._due -= 2 * HELD_S  # however soon that was
            used_s += 2 * HELD_S

        code_run("amqp/filters/values.py", "matches", hold)
        while not told:
            await asyncio.sleep(TICK_S)
        watchdog.stop()

    asyncio.run(scenario())
    assert (told[0].attributes["room"], told[0].attributes["kind"]) == ("amqp", "amqp/filters/values.py matches")
    assert not any(thread.name == "headwater-watchdog" for thread in threading.enumerate())


def test_a_look_that_fails_is_not_the_last(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        watchdog = LoopWatchdog(Bus(), LoopActivity())
        looks: list[int] = []

        def fail() -> None:
            looks.append(1)
            raise OSError("no")

        monkeypatch.setattr(watchdog, "look", fail)
        watchdog.start()
        while len(looks) < 2:
            await asyncio.sleep(TICK_S)
        watchdog.stop()

    asyncio.run(scenario())
    assert any("watchdog failed; it is restarted" in message for message in caplog.messages)


def test_the_lag_is_a_metric() -> None:
    watched = Watched()
    watched.tick(0.002)
    gate = Gate(None, (), RequestMeter())  # type: ignore[arg-type]
    collector = ServerCollector(MemoryStore(), gate, dict, rooms=[lambda: loop_metrics(watched.watchdog)])
    families = {each.name: each for each in text_string_to_metric_families(scrape(collector).decode())}
    values = {sample.labels.get("le"): sample.value for sample in families["headwater_loop_lag_seconds"].samples}
    assert (values["0.001"], values["0.0025"], values["10.0"], values["+Inf"]) == (0, 1, 1, 1)
    reference = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert "`headwater_loop_lag_seconds`" in reference
