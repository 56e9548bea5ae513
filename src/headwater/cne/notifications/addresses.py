"""Resource addresses: `/{cluster}/{site}/.../{node}/{resource}`, and how subscriptions match them.

Addresses match by whole segments. In the pattern of a subscription

- `*` inside a segment matches any run of characters except a slash (`node*`),
- a segment that is exactly `.` is this server's own cluster, site or node,
- a dot inside a longer segment is a dot (nodes are named by their DNS names),
- an address includes everything below it: `/sync` matches itself and everything below; with `/*` at its end, only what
  is below matches.

StarlingX puts the instance of a service between node and resource (`/./controller-0/ptp-inst1/sync/...`). A pattern for
a node includes its instances: if known roots mark where the place ends, a pattern's place may be a prefix of an
event's, as long as it reaches the node.

Producers often omit the place (`/sync/sync-status/sync-state`). In this case the place is that of the event's other
addresses, or otherwise this server's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...core.bounded_cache import remembered

ROOTS = frozenset({"sync", "redfish", "o-ran-sync"})
"""First segments of the resource hierarchies in use; the place comes before them."""
OWN = "."
NO_DATA = ("event-not-found", "ptp-not-set")
"""Words at the end of an address, instead of the resource, if a publisher has no data about it: only the place counts.
Older publishers send these words as the value."""


@dataclass(frozen=True, slots=True)
class Place:
    """This server's place. An empty name is unknown, and then `.` matches every name."""

    cluster: str = ""
    site: str = ""
    node: str = ""


class Address(NamedTuple):
    """An address, split into place and resource."""

    place: tuple[str, ...]
    """The segments before the resource; empty if the address has none."""
    resource: tuple[str, ...]

    @property
    def text(self) -> str:
        """The address with one slash before each segment, and none at the end."""
        return "".join(f"/{segment}" for segment in (*self.place, *self.resource))


@remembered(4096)
def parse(text: str) -> Address:
    """Parse an address; empty segments are ignored.

    Without a known root, up to three segments are the place, and at least one is the resource.
    """
    segments = tuple([segment for segment in text.split("/") if segment])
    for index, segment in enumerate(segments):
        if segment in ROOTS:
            return Address(segments[:index], segments[index:])
    dots = next((index for index, segment in enumerate(segments) if segment != OWN), len(segments))
    places = max(dots, min(3, len(segments) - 1)) if segments else 0
    return Address(segments[:places], segments[places:])


def canonical(text: str) -> str:
    """The address with one slash before each segment and none at the end, so that equal addresses compare equal."""
    if text.startswith("/") and not text.endswith("/") and "//" not in text:
        return text
    return "".join([f"/{segment}" for segment in text.split("/") if segment])


def has_no_data(text: str) -> bool:
    """Whether an address reports that there is no data about its resource: see NO_DATA."""
    return text.rstrip("/").endswith(NO_DATA)


@remembered(4096)
def addresses_of(candidates: tuple[str, ...]) -> tuple[Address, ...]:
    """The distinct addresses of one event, with the most exact first. Addresses without a place get the place of the
    others.
    """
    parsed = [_with_data(text) for text in candidates if text]
    place = next((address.place for address in parsed if address.place), ())
    return tuple(dict.fromkeys([Address(each.place or place, each.resource) for each in parsed if each.resource]))


def _with_data(text: str) -> Address:
    """The address without its last segment if that reports no data."""
    address = parse(text)
    return address._replace(resource=address.resource[:-1]) if has_no_data(text) else address


@remembered(4096)
def tags_of(address: Address, own: Place) -> tuple[tuple[str, str], ...]:
    """The tags to find an event at that address by: cluster, site, node, instance and resource.

    A single place segment is the node; of several, the first is the cluster. `nodes_of` returns which may be the node.
    The site is between cluster and node, the instance after the node.
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
    """Which segments of a place may be the node: the server's own name if present, else the last one.

    In `/./A/B` it may be either: a site and a node, or, as in StarlingX, a node and an instance.
    """
    if own.node and own.node in place[1:]:
        return (place.index(own.node, 1),)
    if len(place) == 3 and place[0] == OWN and place[2] not in (OWN, own.node):
        return 1, 2
    return (len(place) - 1,) if place else ()


class Pattern:
    """The compiled address pattern of a subscription."""

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
        """Its segments, without a final star that stands for everything below."""
        self.is_anywhere = not address.place and bool(address.resource) and address.resource[0] in ROOTS
        """Whether it has no place and so matches the resource anywhere."""
        self._segments, self._own = segments, own

    @property
    def exact(self) -> str | None:
        """The single address that it names, or None if it has wildcards."""
        if self._is_below_only or any("*" in segment or segment == OWN for segment in self._segments):
            return None
        return "".join(f"/{segment}" for segment in self._segments)

    def matches(self, address: Address) -> bool:
        """Whether the pattern matches that address."""
        place, resource = self.address
        if self.is_anywhere:
            return self._is_within(resource, address.resource)
        is_here = place and set(place) == {OWN} and self._is_here(address.place)
        if is_here and self._is_within(resource, address.resource):
            return True  # otherwise the segments after the dots may be a node rather than a resource
        if not address.place and address.resource[0] in ROOTS:
            return self._is_within(resource, address.resource) and self._is_own(place)
        return self._is_within(self._segments, (*address.place, *address.resource)) or self._has_instance(address)

    def _has_instance(self, address: Address) -> bool:
        """Whether the address belongs to an instance on the node, or in the site, that the pattern's place names.

        A place that ends with a wildcard names only a node, because a star never crosses a slash.
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
        """The names that `.` can stand for at that index: first the cluster, then site and node."""
        own = self._own
        names = (own.cluster,) if index == 0 else (own.site, own.node)
        return tuple(name for name in names if name)

    def _is_here(self, place: Sequence[str]) -> bool:
        """Whether an event's place, of any depth, is this server's."""
        own = self._own
        if not place:
            return True
        return (not own.cluster or len(place) < 2 or place[0] in (OWN, own.cluster)) and (
            not own.node or any(place[index] in (OWN, own.node) for index in nodes_of(place, own))
        )

    def _is_own(self, place: Sequence[str]) -> bool:
        """Whether a pattern's place includes this server, the origin of events without a place."""
        own = self._own
        if not place or not (own.cluster or own.node):
            return True
        cluster_fits = len(place) < 2 or not own.cluster or self._is_segment(place[0], own.cluster, 0)
        return cluster_fits and (not own.node or self._is_segment(place[-1], own.node, 2))


def _is_like(wanted: str, given: str) -> bool:
    """Whether a segment matches one with `*`; in linear time, because both come from outside."""
    first, *middle, last = wanted.split("*")
    if len(given) < len(first) + len(last) or not given.startswith(first) or not given.endswith(last):
        return False
    at, end = len(first), len(given) - len(last)
    for piece in middle:
        if (found := given.find(piece, at, end)) < 0:
            return False
        at = found + len(piece)
    return True
