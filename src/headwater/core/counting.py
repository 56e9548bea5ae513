"""Counts the events of a log without reading them: those matching a query, by type, and those with a term."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

NO_TYPES: Mapping[str, int] = {}


class Counted(NamedTuple):
    """One step of a count. Each step is short and contains what was counted since the step before."""

    upto: int
    """Every event up to this number is counted, in this step or an earlier one."""
    events: int
    """The number of matching events."""
    types: Mapping[str, int] = NO_TYPES
    """The number of matches of each type, if requested. If there are very many types, some are left out."""


KEYS_MAX = 64
"""The maximum number of tag keys that can be counted together."""


class TermKind(StrEnum):
    """The kinds of terms by which events are found."""

    TYPE = "type"
    TAG_KEY = "tag_key"
    """The part of a tag before the first colon; a tag without one is its own key."""
    TAG = "tag"
