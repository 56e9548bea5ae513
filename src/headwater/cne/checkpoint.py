"""What a feed leaves in the state store, so that it goes on where it was: states, endpoints, and where they all stand.

It is written in this order, and then acknowledged to the log: whatever is lost by a crash in between is delivered
again, or taken from the log again.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from ..core.event import SequencedEvent
from ..core.local import LocalLog
from ..core.state import StateStore
from ..formats import envelope
from ..formats.decoders import json_decoder
from .kept import Kept
from .states import Key

CONSUMER = ("headwater", "cne")
"""Under which the feed is registered in its log, so that nothing is trimmed before the states have it."""
_ENDPOINT_KIND, _POSITION_KIND = "cne/endpoint", "cne/position"
_SEPARATOR = "\n"
"""In the name of a state, between its address and what tells the sources there apart."""


class Positions(msgspec.Struct):
    """Where everybody stands: the feed, and the endpoints that lag behind it. Suspended ones have `Kept.cursor`."""

    position: int
    behind: dict[str, int] = {}


class Checkpoint(NamedTuple):
    """What was read back."""

    position: int
    """Every event up to it has been dealt with."""
    positions: Positions
    """As they were last written, for a log of this name."""
    states: list[tuple[str, SequencedEvent, bool]]
    """Addresses with an event that is current there, in the order of their numbers; False: under its earlier name."""
    endpoints: dict[str, Kept]
    """By URI."""


class Checkpoints:
    """The checkpoints of the feed of one open log. Reading and writing blocks."""

    def __init__(self, log: LocalLog, state: StateStore) -> None:
        self._log, self._state = log, state
        self._state_kind = f"cne/state/{log.name}"
        self._early: set[str] = set()
        """Addresses under which one event was kept by earlier versions, and still is."""

    def read(self) -> Checkpoint:
        """Register the feed in its log, and read what was written last. Raises EventLogError.

        Cursors hold for every log of this name, because numbers never come twice under a name. States are those of one
        log: they go on with a restored one, whose consumers are restored with it, and not with one that is new.
        """
        entry = self._state.get(_POSITION_KIND, self._log.name)
        positions = json_decoder(Positions).decode(entry.value) if entry else Positions(0)
        consumer = self._log.register_consumer(*CONSUMER, after=0)
        states = []
        for name, row in list(self._state.items(self._state_kind)):
            if consumer.epoch == 1:
                self._state.delete(self._state_kind, name)
            else:
                address, separator, _ = name.partition(_SEPARATOR)
                states.append((address, envelope.decode_event(row.value), bool(separator)))
        self._early = {address for address, _, is_saved in states if not is_saved}
        states.sort(key=lambda pair: pair[1].sequence_number)
        kept = [json_decoder(Kept).decode(row.value) for _, row in self._state.items(_ENDPOINT_KIND)]
        return Checkpoint(consumer.acknowledged, positions, states, {each.uri: each for each in kept})

    def write(
        self, states: Mapping[Key, SequencedEvent | None], endpoints: Mapping[str, bytes | None], positions: Positions
    ) -> None:
        """Write down what has changed, where None says that it is gone, and acknowledge it. Raises EventLogError.

        `endpoints` are encoded, because they may change meanwhile.
        """
        for key, event in states.items():
            self._put(self._state_kind, _name(key), None if event is None else envelope.encode_event(event))
            if key[0] in self._early:
                self._put(self._state_kind, key[0], None)
                self._early.discard(key[0])
        for uri, kept in endpoints.items():
            self._put(_ENDPOINT_KIND, uri, kept)
        self._put(_POSITION_KIND, self._log.name, msgspec.json.encode(positions))
        if not self._log.is_closed:
            self._log.acknowledge(*CONSUMER, positions.position)

    def _put(self, kind: str, name: str, value: bytes | None) -> None:
        if value is None:
            self._state.delete(kind, name)
        else:
            self._state.put(kind, name, value, is_durable=False)


def _name(key: Key) -> str:
    """The name under which a state is kept: short, however long its source."""
    address, (source, addresses) = key
    return f"{address}{_SEPARATOR}{blake2b(source.encode() + addresses, digest_size=8).hexdigest()}"
