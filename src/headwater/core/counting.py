"""What is counted of a log without reading its events: those that match a query, by type, and those of a term."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

NO_TYPES: Mapping[str, int] = {}


class Counted(NamedTuple):
    """One step of a count: it is short, and what it says is what came since the step before."""

    upto: int
    """Every event up to this number is counted, in this step or before."""
    events: int
    """How many match."""
    types: Mapping[str, int] = NO_TYPES
    """Of these, how many of each type, where that is asked for. Where there are very many types, not of all of them."""


KEYS_MAX = 64
"""Keys of tags whose events are counted together."""


class TermKind(StrEnum):
    """What events are found by."""

    TYPE = "type"
    TAG_KEY = "tag_key"
    """What stands before the first colon of a tag; a tag without one is its own key."""
    TAG = "tag"
