"""The watchdog: measures the lag of the event loop, and reports the cause when the lag is long.

One thread serves all peers on the loop, so anything that holds it delays all. A tick on the loop measures its lag.
While a tick is overdue, a watchdog thread examines the loop's thread. C code may keep the interpreter, and so that
thread, until it ends: usually the frame that called it still exists when the thread looks; if not, the note of the last
work (`core.loop.scheduler`) counts.

A late tick alone proves nothing: on a busy machine an idle process waits for its turn. So a lag is reported only if
this process used the CPU for that long in the meantime, in any thread: one that keeps the interpreter blocks the loop.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import PurePath
from types import FrameType
from typing import NamedTuple

from ...core.loop.scheduler import LoopActivity
from ...core.watch.bus import Bus
from ...core.watch.notification_types import NotificationType
from ...core.watch.threads import Threads
from ..front.gate import Gate
from ..front.meter import Histogram

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TICK_S = 0.04
"""How often the lag is measured; the actual hold may be that much longer."""
HELD_S = 0.1
"""The shortest lag that is reported, if the process used a CPU for that long in the meantime."""
LOOK_S = 0.04
"""How often the thread checks for a late tick, and how late it must be for a closer look."""
TELL_S = 1.0
"""The minimum time between two reports. Lags in between are counted."""
SHARED_ROOMS = frozenset({"core", "formats", "http", "storage"})
"""Packages that work for others. Their caller is reported instead."""
UNKNOWN = "unknown"
_PACKAGE = PurePath(__file__).parents[2]
_BELOW_ALL = frozenset({"server/app.py", "cli/main.py", "server/monitoring/loop_watchdog.py"})
"""Files that are always on the loop's stack."""
_ABOVE_ALL = frozenset({"server", "cli"})
"""Rooms that call all others."""


class LoopHold(NamedTuple):
    """What holds the loop."""

    room: str
    kind: str
    """The kind of request, or of work."""
    where: str | None = None
    """The innermost line of this package, as `amqp/filters/values.py:251 end_of_first`; None if unknown."""


class LoopWatchdog:
    """Watches one event loop, from `start` to `stop`, both called on it."""

    def __init__(
        self,
        bus: Bus,
        activity: LoopActivity,
        threads: Threads | None = None,
        clock: Callable[[], float] = time.monotonic,
        used: Callable[[], float] = time.process_time,
    ) -> None:
        """`threads` keep the watching thread running. `used` returns how long the process has had a CPU."""
        self._bus, self._activity, self._clock, self._used = bus, activity, clock, used
        self._threads = threads or Threads(bus)
        self.lags = Histogram(BOUNDS_S)
        """The lag of each tick."""
        self._due = clock()
        """When the next tick is expected."""
        self._used_before = used()
        """What `used` returned at the last tick."""
        self._held: LoopHold | None = None
        """The finding for the current late tick."""
        self._told_at = -TELL_S
        self._untold = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop_thread = 0

    def start(self) -> None:
        """Begin to watch the running loop."""
        self._loop_thread = threading.get_ident()
        self._due = self._clock()
        self._thread = self._threads.start("watchdog", self._watch, self._stopping)
        self._go_on()

    def stop(self) -> None:
        """Stop watching."""
        self._stopping.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._thread is not None:
            self._thread.join()

    # On the loop

    def _go_on(self) -> None:
        self.tick()
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._go_on)

    def tick(self) -> None:
        """The loop is running. Measure the lag, and report it if it is long and this process was busy for that long."""
        now, used = self._clock(), self._used()
        busy_s, self._used_before = used - self._used_before, used
        lag_s = max(0.0, now - self._due)
        held, self._held = self._held, None
        self._due = now + TICK_S
        self.lags.add(lag_s)
        if lag_s >= HELD_S and busy_s >= HELD_S:
            self._tell(now, lag_s, held or of_note(self._activity.what))

    def _tell(self, now: float, lag_s: float, held: LoopHold) -> None:
        if now - self._told_at < TELL_S:
            self._untold += 1
            return
        untold, self._untold, self._told_at = self._untold, 0, now
        self._bus.emit(
            NotificationType.SERVER_LOOP_HELD,
            heldMs=round(lag_s * 1000),
            room=held.room,
            kind=held.kind,
            where=held.where,
            untold=untold,
        )

    # On the watchdog's own thread

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """If a tick is late, find out why, only once. Any thread may call it."""
        if self._held is None and self._clock() - self._due > LOOK_S:
            frame = sys._current_frames().get(self._loop_thread)
            if frame is not None:
                self._held = of_frame(frame, self._activity.what)


def of_note(what: object) -> LoopHold:
    """What holds the loop, according to the note of the work that began last."""
    if isinstance(what, tuple):
        room, kind = what
        return LoopHold(room, kind)
    if isinstance(what, Mapping):
        return LoopHold("http", _request(what))
    return LoopHold(UNKNOWN, UNKNOWN)


def of_frame(frame: FrameType, what: object) -> LoopHold | None:
    """What holds the loop, from its thread's frame; None if that is not in this package.

    The innermost room that does not work for others is reported. The kind of work comes from the request on the stack;
    else from the note, if it is of that room or no such room is on the stack; else from the function.
    """
    room, where, function, scope = "", "", "", None
    each: FrameType | None = frame
    while each is not None:
        if (path := _path(each)) is not None:
            name = path.partition("/")[0]
            where = where or f"{path}:{each.f_lineno} {each.f_code.co_name}"
            if not room or (room in SHARED_ROOMS and name not in SHARED_ROOMS and name not in _ABOVE_ALL):
                room, function = name, f"{path} {each.f_code.co_name}"
            if each.f_code is Gate.__call__.__code__:
                scope = each.f_locals.get("scope")
        each = each.f_back
    if not room:
        return None
    if isinstance(scope, Mapping):
        return LoopHold(room, _request(scope), where)
    noted = of_note(what)
    if noted.room == room or (room in SHARED_ROOMS and noted.room != UNKNOWN):
        return LoopHold(noted.room, noted.kind, where)
    return LoopHold(room, function, where)


def _path(frame: FrameType) -> str | None:
    """The path of a frame's file in this package; None if it is elsewhere, or is not informative."""
    path = PurePath(frame.f_code.co_filename)
    if not path.is_relative_to(_PACKAGE):
        return None
    found = path.relative_to(_PACKAGE).as_posix()
    return None if found in _BELOW_ALL else found


def _request(scope: Mapping[str, object]) -> str:
    route = scope.get("route")
    template = route if isinstance(route, str) else getattr(route, "path", None)
    return f"{scope.get('method', 'WEBSOCKET')} {template or 'unmatched'}"
