"""Assigns a colour to each kind of item on a page: types of events, and states of resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

COLOURS = 24
"""Eight hues, each plain, darker, and lighter: `c0` to `c23` in the page's style."""
OTHER = "other"
"""The class of items without a colour of their own."""
PLAIN = "plain"
"""The class of items of no kind."""
STATES: Mapping[str, str] = {"LOCKED": "good", "HOLDOVER": "warn", "FREERUN": "bad"}
_LIKE_STATES = {place + shade for place in (1, 2, 4) for shade in (0, 8, 16)}
"""The colours similar to those of STATES."""


def palette(types: Iterable[str], states: Iterable[str]) -> dict[str, str]:
    """A class for each type and state: the same name, the same colour, and no two names the same colour.

    The first ones get a colour. If there are more than colours, the rest is `other`; so is the name ''.
    """
    kinds = dict.fromkeys([*types, *states])
    has_states = any(kind in STATES for kind in kinds)
    free = [f"c{place}" for place in range(COLOURS) if not (has_states and place in _LIKE_STATES)][::-1]
    found = {"": OTHER}
    for kind in kinds:
        if kind and kind not in found:
            found[kind] = STATES.get(kind) or (free.pop() if free else OTHER)
    return found
