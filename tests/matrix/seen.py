"""What a reader saw of one event, in one form for all protocols."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple


class NotShown:
    """Stands for what a protocol has no word for."""

    def __repr__(self) -> str:
        return "NOT_SHOWN"


NOT_SHOWN: Final = NotShown()


class Seen(NamedTuple):
    """An event as one reader saw it; None is what the protocol has a word for, and the event has not."""

    number: int
    type: str | NotShown | None
    data: bytes
    tags: tuple[str, ...] | NotShown = NOT_SHOWN
    id: str | NotShown | None = NOT_SHOWN
    source: str | NotShown | None = NOT_SHOWN
    time: str | NotShown | None = NOT_SHOWN
    """When it happened, as the producer has it (RFC 3339)."""
    subject: str | NotShown | None = NOT_SHOWN
    media_type: str | NotShown | None = NOT_SHOWN
    recorded_at: int | NotShown = NOT_SHOWN
    """ms."""
    partition: int | NotShown = NOT_SHOWN
    group_key: str | NotShown = NOT_SHOWN
    trace: tuple[str | None, str | None] | NotShown = NOT_SHOWN
    """`traceparent` and `tracestate`, as the producer has them."""


def canonical(document: Any) -> bytes:
    """A document in one form, whatever its spaces and the order of its members were."""
    return json.dumps(document, sort_keys=True).encode()
