"""How far a log goes at one moment, and a piece of it: what is to be known before any of its events is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Extent:
    """The events of a log that can be read at one moment."""

    head: int
    """The number of the last durable event; 0 if there never was one."""
    first_retained: int
    """The number from which events can be read; head + 1 if there are none."""
    incarnation: str
    """Identity of the log under its name: see LogInfo."""


class SplitSize(NamedTuple):
    """A piece of a log: the events numbered above `after`, up to `upto`."""

    after: int
    upto: int
    events: int
    """How many there are."""
    bytes: int
    """What they take on the disk, about."""
