"""Routes: the endpoints to which an event at some addresses is offered. They are found in slices and cached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...core.loop.slices import Slices
from ..notifications.addresses import Address, Pattern
from ..notifications.records import Subscription
from ..notifications.segment_index import PatternIndex
from .endpoint import Endpoint

ENTRIES_MAX = 200_000
"""The maximum number of entries in all cached routes together."""
TRIES = 3
"""How often to try to find a route in slices. If subscriptions change each time, it is found in one step."""

Addresses = tuple[Address, ...]
Route = tuple[tuple[Endpoint, int], ...]
"""Endpoints, each with the number above which its subscriptions get events."""


class Routes:
    """The subscriptions by address. Use it on one event loop."""

    def __init__(self, active: Mapping[str, Endpoint]) -> None:
        """`active` contains the endpoints to which events are offered, by URI. Call `changed` after changing it."""
        self._active = active
        self._patterns = PatternIndex[Subscription]()
        self._known: dict[Addresses, Route] = {}
        self._size = 0
        self._changes = 0

    def add(self, subscription: Subscription, pattern: Pattern) -> None:
        """Add a subscription."""
        self._patterns.add(subscription.id, pattern, subscription)
        self.changed()

    def remove(self, subscription: Subscription) -> None:
        """Remove a subscription."""
        self._patterns.remove(subscription.id)
        self.changed()

    def changed(self) -> None:
        """Clear the cached routes. A lookup in progress notices, and restarts."""
        if self._known:
            self._known, self._size = {}, 0
        self._changes += 1

    def known(self, addresses: Addresses) -> Route | None:
        """The route, if it is cached."""
        return self._known.get(addresses)

    def find(self, addresses: Addresses) -> Route:
        """The route, found in one step if it is not cached."""
        route = self._known.get(addresses)
        return self._keep(addresses, _starts(self._asking(addresses))) if route is None else route

    async def look_up(self, addresses: Addresses) -> None:
        """Find a route in slices and cache it, unless the subscriptions keep changing."""
        slices = Slices()
        for _ in range(TRIES):
            changes, found = self._changes, list[tuple[Endpoint, int]]()
            for each in self._asking(addresses):
                if each is not None:
                    found.append(each)
                await slices.pause()
                if self._changes != changes:
                    break
            else:
                self._keep(addresses, _starts(iter(found)))
                return

    def _asking(self, addresses: Addresses) -> Iterator[tuple[Endpoint, int] | None]:
        """The endpoint and start of each matching subscription; None for a subscription that does not match."""
        for pattern, subscription in self._patterns.candidates(addresses):
            endpoint = self._active.get(subscription.endpoint)
            is_asking = endpoint is not None and any(map(pattern.matches, addresses))
            yield (endpoint, subscription.start) if endpoint is not None and is_asking else None

    def _keep(self, addresses: Addresses, starts: dict[Endpoint, int]) -> Route:
        if self._size >= ENTRIES_MAX:
            self._known, self._size = {}, 0
        route = self._known[addresses] = tuple(starts.items())
        self._size += len(route) + 1
        return route


def _starts(asking: Iterator[tuple[Endpoint, int] | None]) -> dict[Endpoint, int]:
    """The earliest start by endpoint."""
    found: dict[Endpoint, int] = {}
    for each in asking:
        if each is not None:
            endpoint, start = each
            found[endpoint] = min(start, found.get(endpoint, start))
    return found
