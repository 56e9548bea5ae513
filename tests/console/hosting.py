"""What the console is about, in this process."""

from __future__ import annotations

from typing import Any

from headwater.console.host import ConsoleHost
from headwater.console.live import Live
from headwater.console.series import SERVER_GAUGES, SERVER_SERIES, LogSample, Sample
from headwater.console.sessions import Sessions


def console_host(store: Any, guard: Any, live: Live | None = None) -> ConsoleHost:
    """A host that measures only what a test adds."""
    sessions = guard.sessions if hasattr(guard, "sessions") else Sessions(guard)
    return ConsoleHost(store, guard, sessions, store.bus, live or Live(lambda: sample(0.0)))


def sample(at: float, count: float = 0.0, **logs: tuple[float, ...]) -> Sample:
    """What was counted at that time: the same of everything, but for logs."""
    gauges = dict.fromkeys(SERVER_GAUGES, count)
    return Sample(
        at,
        dict.fromkeys(SERVER_SERIES, count),
        gauges,
        {log: LogSample(int(each[0]), each) for log, each in logs.items()},
    )
