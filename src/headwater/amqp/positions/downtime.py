"""How long no server ran: time that does not count for a receiver that stays away, because it could not come back.

One entry of the `StateStore` has, in ms, until when a server is known to have run, and how long none did before that.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from ...core.state import StateStore

KIND, KEY = "amqp/downtime", ""
NOTE_S = 600.0
"""How often it is written down that the server still runs. A crash adds as much to the time without one, at most."""


class UptimeRun(NamedTuple):
    """One run of a server."""

    since_ms: int
    """When it began, in ms since 1970: the connections of earlier runs had ended by then."""
    down_ms: int
    """How long no server ran before that, in all, in ms; 0 until it is first known."""
    known_ms: int = 0
    """The latest time that an earlier run wrote down, in ms since 1970; a clock that is behind it does not count."""


def begin(state: StateStore, now_ms: int) -> UptimeRun:
    """The run that begins now; blocks. Raises what the store raises."""
    entry = state.get(KIND, KEY)
    last = {"until_ms": now_ms, "down_ms": 0} if entry is None else json.loads(entry.value)
    return UptimeRun(now_ms, last["down_ms"] + max(0, now_ms - last["until_ms"]), last["until_ms"])


def note(state: StateStore, run: UptimeRun, now_ms: int) -> None:
    """Write down that this run goes on; blocks. Raises what the store raises."""
    value = {"until_ms": max(now_ms, run.known_ms), "down_ms": run.down_ms}
    state.put(KIND, KEY, json.dumps(value).encode(), is_durable=False)
