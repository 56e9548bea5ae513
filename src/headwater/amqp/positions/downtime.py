"""Measures the time in which no server ran. Downtime does not count for an absent receiver, because it could not
reconnect.

One entry of the `StateStore` holds, in ms, until when a server is known to have run, and the downtime before that.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from ...core.state import StateStore

KIND, KEY = "amqp/downtime", ""
NOTE_S = 600.0
"""How often a running server records its uptime. A crash adds at most this much to the downtime."""


class UptimeRun(NamedTuple):
    """One run of a server."""

    since_ms: int
    """When this run began, in ms since 1970. All connections of earlier runs had ended by then."""
    down_ms: int
    """Total downtime before that, in ms; 0 until it is known."""
    known_ms: int = 0
    """The latest time that an earlier run recorded, in ms since 1970; a clock that is behind this time is ignored."""


def begin(state: StateStore, now_ms: int) -> UptimeRun:
    """Start a run now; blocks. Raises what the store raises."""
    entry = state.get(KIND, KEY)
    last = {"until_ms": now_ms, "down_ms": 0} if entry is None else json.loads(entry.value)
    return UptimeRun(now_ms, last["down_ms"] + max(0, now_ms - last["until_ms"]), last["until_ms"])


def note(state: StateStore, run: UptimeRun, now_ms: int) -> None:
    """Record that this run continues; blocks. Raises what the store raises."""
    value = {"until_ms": max(now_ms, run.known_ms), "down_ms": run.down_ms}
    state.put(KIND, KEY, json.dumps(value).encode(), is_durable=False)
