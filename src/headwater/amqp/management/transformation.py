"""The notification transformation (event notification 0.2): which attributes a listener gets, and in which form.

The proposal leaves open how to attach it. Here it is a filter of the source, described by the symbol
`headwater:transformation`, which transforms and rejects nothing; or a link property of that name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...core.limits import show
from ..filters import InvalidFilter
from ..protocol.types import Described, Symbol

TRANSFORMATION = Symbol("headwater:transformation")
REQUESTED, COMPACT = "requestedAttributes", "compact"
ATTRIBUTES_MAX = 256


class Transformation(NamedTuple):
    """The form in which a listener gets notifications."""

    attributes: tuple[str, ...]
    """`requestedAttributes`: only these, in this order."""
    is_compact: bool
    """`compact`: a list of their values, null for missing ones; no subject, no application-properties."""


def read_transformation(given: object) -> Transformation:
    """Parse a transformation from its map. Raises InvalidFilter, which says what is wrong with it."""
    value = given.value if isinstance(given, Described) else given
    if not isinstance(value, Mapping):
        raise _fault(f"expected a map, got {show(value)}")
    if unknown := [key for key in value if key not in (REQUESTED, COMPACT)]:
        raise _fault(f"{show(unknown[0])} is unknown; expected {REQUESTED} or {COMPACT}")
    names = value.get(REQUESTED)
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise _fault(f"{REQUESTED}: expected a list of strings, got {show(names)}")
    if len(names) > ATTRIBUTES_MAX:
        raise _fault(f"{REQUESTED}: {len(names)} given, at most {ATTRIBUTES_MAX} are allowed")
    is_compact = value.get(COMPACT)
    if is_compact is not None and not isinstance(is_compact, bool):
        raise _fault(f"{COMPACT}: expected true or false, got {show(is_compact)}")
    return Transformation(tuple(str(name) for name in names), bool(is_compact))


def _fault(problem: str) -> InvalidFilter:
    return InvalidFilter(TRANSFORMATION, problem)
