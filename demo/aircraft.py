"""What is to be known of an aircraft, folded from its events: how often it flew, and what it did on its last day."""

from __future__ import annotations

from typing import Any

from headwater.core import SequencedEvent

from .flights import ARRIVED, DEPARTED


def aircraft(state: dict[str, Any] | None, event: SequencedEvent) -> dict[str, Any]:
    """The state after the event; for `headwater pipeline project --tag tail`."""
    state = state or {"departures": 0, "day": "", "legs": []}
    moment = event.attributes.get("time", "")
    tags = dict(tag.split(":", 1) for tag in event.tags if ":" in tag)
    flight, origin, dest = tags.get("flight", "?"), tags.get("origin", "?"), tags.get("dest", "?")
    if event.type == DEPARTED:
        if moment[:10] != state["day"]:
            state["day"], state["legs"] = moment[:10], []
        state["departures"] += 1
        state["legs"].append({"flight": flight, "from": origin, "to": dest, "departed": moment[11:16]})
    elif event.type == ARRIVED:
        for leg in state["legs"]:
            if leg["flight"] == flight and leg["to"] == dest:
                leg["arrived"] = moment[11:16]
    return state
