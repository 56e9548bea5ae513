"""Only the gate makes columns of events; who else does vouches for what no client gave."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headwater
from headwater.core.limits import EventColumns

SOURCE = Path(headwater.__file__).parent
CALLS = {
    r"EventColumns\.unchecked\(": {
        "core/limits.py",
        "core/alike.py",
        "storage/state/journal.py",  # records of the state, which the server writes itself
    },
    r"\bArrowColumns\(": {
        "formats/arrow/columns.py",
        "formats/arrow/events.py",
        "storage/staging/adoption.py",  # a staged part, whose writer passed the gate
    },
    r"are_messages_checked=": {
        "core/limits.py",
        "amqp/streams/producer.py",  # which looked through each as it read it
        "amqp/messages/inbound.py",  # which is that reading
        "formats/stubs.py",  # which looks at stored ones, and only at what may hurt a reader
    },
}


@pytest.mark.parametrize("call", CALLS)
def test_only_the_gate_makes_columns(call: str) -> None:
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(rf"(?<!class ){call}", path.read_text("utf-8"))
    }
    assert found - CALLS[call] == set()


def test_columns_have_no_other_constructor() -> None:
    with pytest.raises(TypeError):
        EventColumns([], [], [], [], [], [], [], [], [], 0)  # type: ignore[call-arg]
