"""Resource addresses: `/{cluster}/{site}/.../{node}/{resource}`, and which subscription asks for which of them.

Addresses match by whole segments. In the pattern of a subscription

- `*` inside a segment stands for any run of characters without a slash (`node*`),
- a segment that is exactly `.` is the subscriber's own cluster, site or node,
- a dot inside a longer segment is a dot (nodes are named by their DNS names),
- what lies below the address belongs to it: `/sync` asks for everything below `/sync`; with `/*` at its end, for what
  lies below only.

StarlingX puts the instance of a service between node and resource (`/./controller-0/ptp-inst1/sync/...`). Whoever asks
for a node asks for its instances: where roots say where the place ends, that of a pattern may be the beginning of an
event's, as long as it reaches the node.

Producers often leave the place out (`/sync/sync-status/sync-state`). Then the place is that of the event's other
addresses, or else this server's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...core.bounded_cache import remembered

ROOTS = frozenset({"sync", "redfish", "o-ran-sync"})
"""First segments of the resource hierarchies in the field: before them stands the place."""
OWN = "."
NO_DATA = ("event-not-found", "ptp-not-set")
"""What stands at the end of an address, in place of the resource, where a publisher has no data about it: its place
counts, and it is the address of nothing. Older publishers send these words as the value."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where this server stands. An empty name is not known, and then `.` matches every name."""

    cluster: str = ""
    site: str = ""
    node: str = ""


class Address(NamedTuple):
    """An address in its two parts."""

    place: tuple[str, ...]
    """The segments before the resource; empty where the address has none."""
    resource: tuple[str, ...]

    @property
    def text(self) -> str:
        """With one slash before each segment, and none at the end."""
        return "".join(f"/{segment}" for segment in (*self.place, *self.resource))


@remembered(4096)
def parse(text: str) -> Address:
    """The address that a text is; empty segments do not count.

    Where no known root says where the resource begins, up to three segments are the place, and at least one is not.
    """
    segments = tuple([segment for segment in text.split("/") if segment])
    for index, segment in enumerate(segments):
        if segment in ROOTS:
            return Address(segments[:index], segments[index:])
    dots = next((index for index, segment in enumerate(segments) if segment != OWN), len(segments))
    places = max(dots, min(3, len(segments) - 1)) if segments else 0
    return Address(segments[:places], segments[places:])


def canonical(text: str) -> str:
    """The address with one slash before each segment and none at the end, so that two that are the same are equal."""
    if text.startswith("/") and not text.endswith("/") and "//" not in text:
        return text
    return "".join([f"/{segment}" for segment in text.split("/") if segment])


def has_no_data(text: str) -> bool:
    """Whether an address says that there is no data about its resource: see NO_DATA."""
    return text.rstrip("/").endswith(NO_DATA)


@remembered(4096)
def addresses_of(candidates: tuple[str, ...]) -> tuple[Address, ...]:
    """The addresses of one event, the most exact first, each once; those without a place get that of the others."""
    parsed = [_with_data(text) for text in candidates if text]
    place = next((address.place for address in parsed if address.place), ())
    return tuple(dict.fromkeys([Address(each.place or place, each.resource) for each in parsed if each.resource]))


def _with_data(text: str) -> Address:
    """The address; without its last segment where that says that there is no data."""
    address = parse(text)
    return address._replace(resource=address.resource[:-1]) if has_no_data(text) else address


@remembered(4096)
def tags_of(address: Address, own: Place) -> tuple[tuple[str, str], ...]:
    """Keys and values by which an event at that address is found: cluster, site, node, instance and resource.

    Of one segment of place, it is the node; of more, the first is the cluster. `nodes_of` says which may be the node.
    Between cluster and node is the site, after the node the instance.
    """
    place = address.place
    nodes = nodes_of(place, own)
    cluster = place[0] if len(place) > 1 else OWN
    site = "/".join(place[1 : nodes[-1]]) if nodes else ""
    named = [("cluster", cluster, own.cluster), ("site", site or OWN, own.site)]
    named += [("node", place[index], own.node) for index in nodes] or [("node", OWN, own.node)]
    if nodes and nodes[0] + 1 < len(place):
        named.append(("instance", "/".join(place[nodes[0] + 1 :]), ""))
    found = [(key, mine if name == OWN else name) for key, name, mine in named if name != OWN or mine]
    return (*found, ("resource", Address((), address.resource).text))


def nodes_of(place: Sequence[str], own: Place) -> tuple[int, ...]:
    """Which segments of a place may name the node: the own name where it is there, else the last one.

    In `/./A/B` it may be either: it is a site and a node, or, as StarlingX has it, a node and an instance.
    """
    if own.node and own.node in place[1:]:
        return (place.index(own.node, 1),)
    if len(place) == 3 and place[0] == OWN and place[2] not in (OWN, own.node):
        return 1, 2
    return (len(place) - 1,) if place else ()


class Pattern:
    """What a subscription asks for, compiled."""

    __slots__ = ("_is_below_only", "_own", "_segments", "address", "is_anywhere", "text")

    def __init__(self, text: str, own: Place) -> None:
        address = parse(text)
        segments = (*address.place, *address.resource)
        self.text = text
        self._is_below_only = len(segments) > 1 and segments[-1] == "*"
        if self._is_below_only:
            segments = segments[:-1]
            address = parse("/".join(segments))
        self.address = address
        """Its segments, without a star at the end that stands for what lies below."""
        self.is_anywhere = not address.place and bool(address.resource) and address.resource[0] in ROOTS
        """Whether it has no place: then it asks for the resource wherever it is."""
        self._segments, self._own = segments, own

    @property
    def exact(self) -> str | None:
        """The one address that it names, or None where it has wildcards."""
        if self._is_below_only or any("*" in segment or segment == OWN for segment in self._segments):
            return None
        return "".join(f"/{segment}" for segment in self._segments)

    def matches(self, address: Address) -> bool:
        """Whether the subscription asks for events at that address."""
        place, resource = self.address
        if self.is_anywhere:
            return self._is_within(resource, address.resource)
        is_here = place and set(place) == {OWN} and self._is_here(address.place)
        if is_here and self._is_within(resource, address.resource):
            return True  # else what follows the dots may be a node, and no resource
        if not address.place and address.resource[0] in ROOTS:
            return self._is_within(resource, address.resource) and self._is_own(place)
        return self._is_within(self._segments, (*address.place, *address.resource)) or self._has_instance(address)

    def _has_instance(self, address: Address) -> bool:
        """Whether the address is that of an instance on a node, or in a site, that the pattern's place names.

        A place that ends with a wildcard names no more than a node: no star crosses a slash.
        """
        place, resource = self.address
        if not 0 < len(place) < len(address.place) or set(place) == {OWN}:
            return False
        if not resource or resource[0] not in ROOTS or address.resource[0] not in ROOTS:
            return False
        is_named = place[-1] != OWN and "*" not in place[-1]
        return (
            (is_named or nodes_of(address.place, self._own)[0] < len(place))
            and all(map(self._is_segment, place, address.place, range(len(place))))
            and self._is_within(resource, address.resource)
        )

    def _is_within(self, pattern: Sequence[str], segments: Sequence[str]) -> bool:
        needed = len(pattern) + self._is_below_only
        return len(segments) >= needed and all(
            self._is_segment(wanted, given, index)
            for index, (wanted, given) in enumerate(zip(pattern, segments, strict=False))
        )

    def _is_segment(self, wanted: str, given: str, index: int) -> bool:
        if wanted == given:
            return True
        if wanted == OWN:
            names = self._own_names(index)
            return not names or given in names
        if given == OWN:
            return any(self._is_segment(wanted, name, index) for name in self._own_names(index)) or (
                not self._own_names(index)
            )
        return "*" in wanted and _is_like(wanted, given)

    def _own_names(self, index: int) -> tuple[str, ...]:
        """What `.` can stand for there: first comes the cluster, then site and node."""
        own = self._own
        names = (own.cluster,) if index == 0 else (own.site, own.node)
        return tuple(name for name in names if name)

    def _is_here(self, place: Sequence[str]) -> bool:
        """Whether a place of an event, of whatever depth, is this server's own."""
        own = self._own
        if not place:
            return True
        return (not own.cluster or len(place) < 2 or place[0] in (OWN, own.cluster)) and (
            not own.node or any(place[index] in (OWN, own.node) for index in nodes_of(place, own))
        )

    def _is_own(self, place: Sequence[str]) -> bool:
        """Whether a place in a pattern takes in this server, where an event without any place came from."""
        own = self._own
        if not place or not (own.cluster or own.node):
            return True
        cluster_fits = len(place) < 2 or not own.cluster or self._is_segment(place[0], own.cluster, 0)
        return cluster_fits and (not own.node or self._is_segment(place[-1], own.node, 2))


def _is_like(wanted: str, given: str) -> bool:
    """Whether a segment fits one with `*` in it; in linear time, because both come from outside."""
    first, *middle, last = wanted.split("*")
    if len(given) < len(first) + len(last) or not given.startswith(first) or not given.endswith(last):
        return False
    at, end = len(first), len(given) - len(last)
    for piece in middle:
        if (found := given.find(piece, at, end)) < 0:
            return False
        at = found + len(piece)
    return True
