"""The current states of every resource: the newest notification about it from each source, in any protocol.

The table is derived from the log alone. Its content is also in the state store, so that it outlives its events;
`unsaved` lists the entries that must still be written there."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from hashlib import blake2b

from msgspec.structs import replace

from ..core.event import SequencedEvent
from ..core.loop.slices import Slices
from .notifications.addresses import Address, Pattern
from .notifications.notification import Notification, Value
from .notifications.records import RESOURCE_CHARS_MAX
from .notifications.segment_index import AddressIndex
from .notifications.stored import Stored

SOURCES_MAX = 32
"""The maximum number of sources per address. Beyond that, the source that has been silent for longest is dropped."""
BYTES_MAX = 256 * 1024 * 1024
"""The memory limit, as estimated by `Stored.bytes`. States live as long as the data, so they count as the server's base
memory, not as memory that peers make it hold for a while."""
ENTRY_BYTES = 1024
"""The size of an entry, in addition to its share of its event."""
ASKED_MAX = 100_000
"""The maximum number of cached patterns and matching addresses, together."""

Strand = tuple[str, bytes]
"""Identifies notifications that replace each other at an address: same source and, by digest, same addresses."""
Key = tuple[str, Strand]
"""The key of one entry: an address and a strand there."""
_logger = logging.getLogger("headwater.cne")


class States:
    """The newest notifications by resource address. At the limit, known addresses stay and new ones get no state."""

    def __init__(self, addresses_max: int) -> None:
        self._addresses_max = addresses_max
        self._newest: dict[str, tuple[Address, dict[Strand, Stored]]] = {}
        self._index = AddressIndex()
        self._bytes = 0
        self._asked: dict[str, tuple[str, ...]] = {}
        """Addresses by pattern, until a new address appears."""
        self._asked_size = 0
        self._is_reported = False
        """Whether the server's log has reported that there is no room for another address."""
        self.unsaved: set[Key] = set()

    @property
    def has_room(self) -> bool:
        """Whether an unknown address can get a state."""
        return len(self._newest) < self._addresses_max and self._bytes < BYTES_MAX

    def apply(self, stored: Stored) -> None:
        """Apply a notification, which must be newer than all earlier ones."""
        strand = _strand(stored)
        for address in stored.addresses:
            self._put(address, strand, stored)

    def restore(self, stored: Stored, address: str, *, is_saved: bool = True) -> None:
        """Restore one entry from the state store; `is_saved`: it need not be written again."""
        key = address, _strand(stored)
        for each in stored.addresses:
            if each.text == address:
                self._put(each, key[1], stored)
        if self.get(key) is None:
            self.unsaved.add(key)  # there is no room for it; if the store kept it, it would become outdated
        elif is_saved:
            self.unsaved.discard(key)

    async def find(self, pattern: Pattern, slices: Slices, first: int = 1, last: int | None = None) -> list[Stored]:
        """The newest notifications matching the pattern, each once, in order of number.

        `first` and `last` bound the event numbers, both inclusive. The exact address is tried first; other matches only
        if it is missing. Other tasks get turns in between: a state that changes meanwhile may be the old or the new
        one.
        """
        newest: dict[int, Stored] = {}
        for text in await self._addresses(pattern, slices):
            await slices.pause()
            if (found := self._newest.get(text)) is not None:
                for stored in found[1].values():
                    if first <= stored.sequence_number and (last is None or stored.sequence_number <= last):
                        newest[stored.sequence_number] = stored
        return [newest[number] for number in sorted(newest)]

    async def _addresses(self, pattern: Pattern, slices: Slices) -> Sequence[str]:
        """The addresses matching a pattern."""
        if (exact := pattern.exact) is not None and exact in self._newest:
            return (exact,)
        if (known := self._asked.get(pattern.text)) is not None:
            return known
        remembered = self._asked
        found = []
        candidates = self._index.candidates(pattern)
        for text in list(self._newest) if candidates is None else candidates:
            await slices.pause()
            if (entry := self._newest.get(text)) is not None and pattern.matches(entry[0]):
                found.append(text)
        asked = tuple(found)
        if self._asked is remembered and len(pattern.text) <= RESOURCE_CHARS_MAX:
            self._remember(pattern.text, asked)
        return asked

    def _remember(self, pattern: str, asked: tuple[str, ...]) -> None:
        if self._asked_size + len(asked) >= ASKED_MAX:
            self._forget_asked()
        self._asked[pattern] = asked
        self._asked_size += len(asked) + 1

    def _forget_asked(self) -> None:
        """Clear the cache. A search in progress notices this, and does not cache its result."""
        self._asked, self._asked_size = {}, 0

    def get(self, key: Key) -> SequencedEvent | None:
        """The event of an entry, if it exists."""
        address, strand = key
        found = self._newest[address][1].get(strand) if address in self._newest else None
        return None if found is None else found.event

    def has(self, stored: Stored) -> bool:
        """Whether a notification is current at any of its addresses: the newest of its source, and not replaced."""
        strand, said = _strand(stored), _said(stored)
        for each in stored.addresses:
            strands = self._newest[each.text][1] if each.text in self._newest else {}
            found = strands.get(strand)
            if found is None or found.sequence_number != stored.sequence_number:
                continue
            newer = (other for other in strands.values() if other.sequence_number > stored.sequence_number)
            if all(said.isdisjoint(_said(other)) for other in newer):
                return True
        return False

    def _put(self, address: Address, strand: Strand, stored: Stored) -> None:
        text = address.text
        if text not in self._newest:
            if not self.has_room:
                self._report(text)
                return
            self._newest[text] = address, {}
            self._index.add(address, text)
            self._forget_asked()
        strands = self._newest[text][1]
        known = strands.pop(strand, None)
        outdated = list(_outdated(strands, stored)) if strands else []
        strands[strand] = stored  # at the end, because the first one is the source that has been silent for longest
        self._bytes += _size(stored) - (0 if known is None else _size(known))
        self.unsaved.add((text, strand))
        for other in outdated:
            self._forget(text, other)
        if known is None and not outdated and self._bytes > BYTES_MAX:
            self._forget(text, strand)
            self._report(text)

    def _forget(self, text: str, strand: Strand) -> None:
        strands = self._newest[text][1]
        self._bytes -= _size(strands.pop(strand))
        self.unsaved.add((text, strand))
        if not strands:
            self._index.remove(self._newest.pop(text)[0], text)
            self._forget_asked()

    def _report(self, text: str) -> None:
        if not self._is_reported:
            self._is_reported = True
            limits = f"cne.states_max is {self._addresses_max}, and they take {self._bytes} of {BYTES_MAX} bytes"
            _logger.warning("no room for the current state of %s or other new resources: %s", text, limits)


def _strand(stored: Stored) -> Strand:
    addresses = "\n".join([each.text for each in stored.addresses])
    return stored.notification.source, blake2b(addresses.encode(), digest_size=16).digest()


def _size(stored: Stored) -> int:
    """The size of one of its entries, which share the event."""
    return stored.bytes // len(stored.addresses) + ENTRY_BYTES


def _said(stored: Stored) -> frozenset[tuple[str, str]]:
    """The resource addresses and data types for which a notification contains values."""
    return frozenset((value.resource.strip("/"), value.data_type) for value in stored.notification.values)


def _outdated(strands: dict[Strand, Stored], stored: Stored) -> Iterator[Strand]:
    """The strands that a notification replaces in addition to its own.

    A source that reports no data withdraws all its values, and one that has data again withdraws that report.
    """
    source, is_absent, others = stored.notification.source, stored.notification.is_absent, list(strands)
    if len(others) >= SOURCES_MAX:
        yield others.pop(0)
    for other in others:
        if other[0] == source and (is_absent or strands[other].notification.is_absent):
            yield other


async def about(found: Sequence[Stored], address: str, slices: Slices) -> AsyncIterator[tuple[Stored, Notification]]:
    """Current states as one notification per resource, with the values of all its sources, newest first.

    Its other fields are those of the newest one, which is returned with it. If values have the requested address, only
    these are included. A value replaces all older ones of its source, address and data type.
    """
    groups: dict[Address, list[Stored]] = {}
    for stored in found:
        await slices.pause()
        groups.setdefault(stored.addresses[0], []).append(stored)
    for group in sorted(groups.values(), key=lambda group: group[-1].sequence_number):
        await slices.pause()
        yield group[-1], replace(group[-1].notification, values=_values(group, address))


def _values(group: Sequence[Stored], address: str) -> tuple[Value, ...]:
    newest: dict[tuple[str, str, str], list[Value]] = {}
    for stored in reversed(group):
        notification = stored.notification
        own = [value for value in notification.values if _is_at(value.resource, address)] or notification.values
        said: dict[tuple[str, str, str], list[Value]] = {}
        for value in own:
            said.setdefault((notification.source, value.resource, value.data_type), []).append(value)
        newest |= {what: values for what, values in said.items() if what not in newest}
    return tuple(value for values in newest.values() for value in values)


def _is_at(resource: str, address: str) -> bool:
    return resource.strip("/") == address.strip("/")
