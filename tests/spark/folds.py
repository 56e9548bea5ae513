"""Functions that tests fold events with, here and in Spark's workers."""

from __future__ import annotations

import json
import time
from typing import Any

from headwater.core import SequencedEvent

State = dict[str, Any]


def totals(state: State | None, event: SequencedEvent) -> State | None:
    """How many events, their amounts, and the newest types; `Closed` is the end of an entity."""
    if event.type == "Closed":
        return None
    state = state or {"count": 0, "amount": 0, "types": []}
    state["count"] += 1
    state["amount"] += json.loads(event.data)["n"]
    state["types"] = [*state["types"], event.type][-3:]
    return state


def order(state: State | None, event: SequencedEvent) -> State:
    """All numbers in the order in which they come, with what JSON writes otherwise than Python has it."""
    seen = (state or {"seen": []})["seen"]
    assert isinstance(seen, list), "a tuple is a list in the middle of a batch too"
    by_number = dict(state["by_number"]) if state else {}
    assert list(by_number) == sorted(by_number)
    last = {str(1000 - event.sequence_number): event.type}
    last |= {number: by_number[number] for number in list(by_number)[:2]}
    return {"seen": (*seen, event.sequence_number), "by_number": last, "ratio": 1 / event.sequence_number, "ä": "ü"}


def every_field(_: State | None, event: SequencedEvent) -> State:
    """The event itself."""
    fields = event._asdict()
    fields["data"] = event.data.decode()
    fields["envelope"] = event.envelope.decode()
    return {**fields, "attributes": dict(event.attributes), "encoding": int(event.encoding)}


def broken(state: State | None, event: SequencedEvent) -> State:
    """Fails at event 7."""
    if event.sequence_number == 7:
        raise KeyError("amount")
    return {}


def a_list(state: State | None, event: SequencedEvent) -> list[int]:
    """No state."""
    return [1]


def a_number_as_a_name(state: State | None, event: SequencedEvent) -> dict[Any, Any]:
    """In JSON names are text: the next event would find another one."""
    return {event.sequence_number: 1}


def an_object(state: State | None, event: SequencedEvent) -> State:
    """A state that is no JSON."""
    return {"at": object()}


def slow(state: State | None, event: SequencedEvent) -> State:
    """Takes its time."""
    time.sleep(0.2)
    return {}


NOT_A_FUNCTION = 3
