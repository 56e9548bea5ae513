"""Calls the user's function, always with a state as read from the table, whatever batch it comes from.

Between any two calls a state is text: JSON without spaces, with sorted names. So a tuple becomes a list, and names are
sorted, not only when resuming from a table, but also within a batch; and folding in batches of any size gives the same
table, byte for byte. No Spark here.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from ...core.errors import InvalidInput
from ...core.event import SequencedEvent
from .errors import FoldFailed

State = dict[str, Any]
Function = Callable[[State | None, SequencedEvent], State | None]
"""Maps the state before an event to the state after it; None means that there is no state."""

_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


class Row(NamedTuple):
    """The table's row for one entity."""

    state: bytes
    """Canonical JSON."""
    sequence_number: int
    """The number of the last folded event."""
    events: int
    """The number of events folded since the entity last had no state."""


class Fold(NamedTuple):
    """A function by its name and its module's directory; it is sent by name, as Spark does with modules."""

    name: str
    """`module:function`."""
    directory: str

    def load(self) -> Function:
        """The function. Raises InvalidInput."""
        module, colon, attribute = self.name.partition(":")
        if not (module and colon and attribute):
            raise InvalidInput(f"expected MODULE:FUNCTION, got {self.name!r}", "fold")
        if self.directory not in sys.path:
            sys.path.insert(0, self.directory)  # commands and workers do not search their working directory
        try:
            found: Any = importlib.import_module(module)
        except ImportError as error:
            raise InvalidInput(f"module {module!r} cannot be imported: {error}", "fold") from error
        for part in attribute.split("."):
            found = getattr(found, part, None)
        if not callable(found):
            what = "has no such function" if found is None else f"has a {type(found).__name__} of that name"
            raise InvalidInput(f"module {module!r} {what}: {attribute!r}", "fold")
        return found  # type: ignore[no-any-return]


def fold_of(name: str) -> Fold:
    """The function of that name, searched in the current directory first. Raises InvalidInput."""
    fold = Fold(name, os.getcwd())
    fold.load()
    return fold


def folded(name: str, function: Function, row: Row | None, entity: str, event: SequencedEvent) -> Row | None:
    """The row of an entity after one more event. Raises FoldFailed."""
    try:
        state = function(None if row is None else _decode(row.state), event)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise FoldFailed(name, entity, event.sequence_number, problem) from error
    if state is None:
        return None
    if not isinstance(state, dict):
        problem = f"it returned {type(state).__name__}; expected a dict or None"
        raise FoldFailed(name, entity, event.sequence_number, problem)
    try:
        text = _encode(state)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        problem = f"the returned state is not JSON: {error}"
        raise FoldFailed(name, entity, event.sequence_number, problem) from error
    return Row(text, event.sequence_number, 1 if row is None else row.events + 1)


def state_of(row: Row) -> State:
    """The state that a row holds."""
    state: State = _decode(row.state)
    return state
