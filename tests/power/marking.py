"""Marks that a driver puts into the record, and the payloads by which its events are known."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

from tests.load.ledger import text_of

from .recording import Recording
from .serving import ROLLING, TRIMMED

REPEATS = {ROLLING: 40, TRIMMED: 40}
"""In these logs events have so many times 64 bytes more."""


def text_in(log: str, marker: str) -> str:
    """The payload that goes with a marker in that log."""
    return text_of(marker, REPEATS.get(log, 0))


class Marking:
    """Puts marks into the record."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._ids = itertools.count()

    @contextlib.contextmanager
    def step(self, kind: str, *name: str, value: Any) -> Iterator[dict[str, Any]]:
        """A register gets a value. What is put into the dictionary is what was answered; an exception leaves it open.

        Whoever repeats a step that failed begins another one.
        """
        id, answer = next(self._ids), dict[str, Any]()
        self.recording.mark(step=id, register=[kind, *name], value=value)
        yield answer
        self.recording.mark(done=id, answer=answer)


def marker_in(data: bytes) -> str:
    """The marker in a payload."""
    start = data.find(b"good:")
    end = data.find(b"~", start)
    return data[start:end].decode() if start >= 0 else ""
