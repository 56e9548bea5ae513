"""Gives each kind of thing on a page a colour of its own: types of events, and states of resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

COLOURS = 24
"""Eight hues, each as it is, darker, and lighter: `c0` to `c23` in the page's style."""
OTHER = "other"
"""The class of all that have no colour of their own."""
PLAIN = "plain"
"""The class of what stands for no kind."""
STATES: Mapping[str, str] = {"LOCKED": "good", "HOLDOVER": "warn", "FREERUN": "bad"}
_LIKE_STATES = {place + shade for place in (1, 2, 4) for shade in (0, 8, 16)}
"""The colours that look like those of STATES."""


def palette(types: Iterable[str], states: Iterable[str]) -> dict[str, str]:
    """A class for each type and state: the same name, the same colour, and no two names the same colour.

    Those that come first get one. Where there are more than colours, the others are `other`; so is the name ''.
    """
    kinds = dict.fromkeys([*types, *states])
    has_states = any(kind in STATES for kind in kinds)
    free = [f"c{place}" for place in range(COLOURS) if not (has_states and place in _LIKE_STATES)][::-1]
    found = {"": OTHER}
    for kind in kinds:
        if kind and kind not in found:
            found[kind] = STATES.get(kind) or (free.pop() if free else OTHER)
    return found
