"""The current state of every resource: the newest notification about it, whoever wrote it.

The table is derived from the log alone. What it holds is also in the state store, so that it outlives the events that
it came from; `unsaved` is what is still to be written there.
"""

from __future__ import annotations

import logging

from msgspec.structs import replace

from ..core.event import SequencedEvent
from .addresses import Address, Pattern
from .notification import Notification
from .records import RESOURCE_CHARS_MAX
from .stored import Stored

RESOURCES_MAX = 20_000
BYTES_MAX = 256 * 1024 * 1024
PATTERNS_MAX = 1024

_logger = logging.getLogger("headwater.cne")


class States:
    """The newest notification by resource address. Where there are too many, the oldest one goes first."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[Address, Stored]] = {}
        self._bytes = 0
        self._asked: dict[str, tuple[str, ...]] = {}
        """Addresses by pattern, until a new address comes."""
        self.unsaved: set[str] = set()

    def apply(self, stored: Stored) -> None:
        """Take a notification, which must be newer than those before it."""
        for address in stored.addresses:
            self._put(address, stored)

    def restore(self, stored: Stored, address: str) -> None:
        """Take one entry from the state store."""
        for each in stored.addresses:
            if each.text == address:
                self._put(each, stored)
        self.unsaved.discard(address)

    def find(self, pattern: Pattern) -> list[Stored]:
        """The newest notifications for what the pattern asks: each once, in the order of their numbers.

        The address itself is looked for first; only where there is none, what matches it otherwise.
        """
        if (exact := pattern.exact) is not None and (found := self._newest.get(exact)) is not None:
            return [found[1]]
        asked = self._asked.get(pattern.text)
        if asked is None:
            asked = tuple(text for text, (address, _) in self._newest.items() if pattern.matches(address))
            if len(pattern.text) <= RESOURCE_CHARS_MAX:
                self._remember(pattern.text, asked)
        newest = {self._newest[text][1].sequence_number: self._newest[text][1] for text in asked}
        return [newest[number] for number in sorted(newest)]

    def _remember(self, pattern: str, asked: tuple[str, ...]) -> None:
        if len(self._asked) >= PATTERNS_MAX:
            self._asked.clear()
        self._asked[pattern] = asked

    def get(self, address: str) -> SequencedEvent | None:
        """The event behind the newest notification at that very address."""
        found = self._newest.get(address)
        return None if found is None else found[1].event

    def _put(self, address: Address, stored: Stored) -> None:
        text = address.text
        known = self._newest.pop(text, None)
        if known is None:
            self._asked.clear()
        else:
            self._bytes -= len(known[1].event.data)
        self._newest[text] = (address, stored)
        self._bytes += len(stored.event.data)
        self.unsaved.add(text)
        while len(self._newest) > RESOURCES_MAX or self._bytes > BYTES_MAX:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        text = next(iter(self._newest))
        _, stored = self._newest.pop(text)
        self._bytes -= len(stored.event.data)
        self._asked.clear()
        self.unsaved.add(text)
        _logger.warning("the current state of %s is forgotten: there are too many resources", text)


def about(stored: Stored, address: str) -> Notification:
    """The notification with the values of that address only, if any of them bears it; else with all of them."""
    notification = stored.notification
    own = tuple(value for value in notification.values if _is_at(value.resource, address))
    return replace(notification, values=own) if own else notification


def _is_at(resource: str, address: str) -> bool:
    return resource.strip("/") == address.strip("/")
