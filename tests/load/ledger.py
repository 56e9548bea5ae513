"""What writers were told and readers saw, and what is wrong with that.

A payload follows from its marker, so that whoever receives it can tell whether it is whole.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

_PAYLOAD = re.compile(rb"(good:(\w+):\d+)~([0-9a-f]*)")
SHOWN = 5
"""So many culprits are named in one fault."""


def text_of(marker: str, repeats: int = 0) -> str:
    """The payload that goes with a marker: 64 to 512 characters more, now and then 4,096; or so many times 64."""
    digest = hashlib.sha256(marker.encode())
    first = digest.digest()[0]
    return f"{marker}~{digest.hexdigest() * (repeats or (64 if first < 8 else 1 + first % 8))}"


def marker_in(payload: bytes) -> str:
    """The marker in a payload; where there is none, what is there instead."""
    found = _PAYLOAD.search(payload)
    return found[1].decode() if found else payload.decode(errors="replace").strip('"')


class Book:
    """Of one log: which event stands at which number, as its first reader saw it, and the faults that were found."""

    def __init__(self, repeats: int = 0) -> None:
        self._repeats = repeats
        self.markers: dict[int, str] = {}
        self.faults: list[str] = []

    def text(self, marker: str) -> str:
        """The payload of a marker in this log."""
        return text_of(marker, self._repeats)

    def note(self, page: Page, number: int, payload: bytes) -> None:
        """A reader received this."""
        found = _PAYLOAD.search(payload)
        if found is None:
            self.faults.append(f"{page.name} received event {number}, which nobody wrote: {payload[:100]!r}")
            return
        marker = found[1].decode()
        if found[0].decode() != self.text(marker):
            self.faults.append(f"{page.name} received event {number} ({marker}) with a damaged payload")
        known = self.markers.setdefault(number, marker)
        if known != marker:
            self.faults.append(f"{page.name} received {marker} as event {number}, another reader received {known}")
        if problem := page.turn(number):
            self.faults.append(f"{page.name} {problem}")


class Page:
    """The numbers that one reader saw."""

    def __init__(self, name: str, *, may_repeat: bool) -> None:
        self.name, self._may_repeat = name, may_repeat
        self.numbers = array("q")
        """Ascending."""
        self.repeats = 0

    def turn(self, number: int) -> str:
        """Note a number; answers what is wrong with it."""
        if not self.numbers or number > self.numbers[-1]:
            self.numbers.append(number)
            return ""
        place = bisect_left(self.numbers, number)
        if self.numbers[place] != number:
            return f"received event {number} for the first time after event {self.numbers[-1]}"
        self.repeats += 1
        return "" if self._may_repeat else f"received event {number} again"


def faults_of_writer(
    name: str, acknowledged: Sequence[str], under_way: Sequence[str], told: Mapping[str, int], stored: Mapping[int, str]
) -> list[str]:
    """Whether what one writer was told is so: each acknowledged event once, in order; others once at most."""
    faults, wanted = [], set(acknowledged)
    its = [marker for marker in stored.values() if marker.split(":")[1] == name]
    times = Counter(its)
    if repeated := _shown(marker for marker, count in times.items() if count > 1):
        faults.append(f"{name}: stored more than once: {repeated}")
    if missing := _shown(sorted(wanted - times.keys(), key=_place)):
        faults.append(f"{name}: acknowledged and not there: {missing}")
    if surplus := _shown(sorted(times.keys() - wanted - set(under_way), key=_place)):
        faults.append(f"{name}: never sent, or given up, and there: {surplus}")
    in_order = [marker for marker in its if marker in wanted]
    if not faults and in_order != list(acknowledged):
        first = next(a for a, b in zip(in_order, acknowledged, strict=True) if a != b)
        faults.append(f"{name}: not in the order of its acknowledgements, from {first} on")
    if wrong := _shown(f"{marker} as {number}" for marker, number in told.items() if stored.get(number) != marker):
        faults.append(f"{name}: told another number than the one where it is: {wrong}")
    return faults


def faults_of_reader(page: Page, stored: Mapping[int, str], writers: frozenset[str] | None) -> list[str]:
    """Whether a reader saw all that is there for it; in which order, was seen while it came."""
    expected = {n for n, marker in stored.items() if writers is None or marker.split(":")[1] in writers}
    seen, faults = set(page.numbers), []
    if missing := _shown(f"{number} ({stored[number]})" for number in sorted(expected - seen)):
        faults.append(f"{page.name} missed {len(expected - seen)} events: {missing}")
    if surplus := _shown(map(str, sorted(seen - expected))):
        faults.append(f"{page.name} saw {len(seen - expected)} events that are not there, or not for it: {surplus}")
    return faults


def _place(marker: str) -> int:
    return int(marker.rpartition(":")[2])


def _shown(culprits: Iterable[str]) -> str:
    found = list(culprits)
    return ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")
