"""Routes: the endpoints to which an event at some addresses is offered, found in slices and remembered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...core.loop.slices import Slices
from ..notifications.addresses import Address, Pattern
from ..notifications.records import Subscription
from ..notifications.segment_index import PatternIndex
from .endpoint import Endpoint

ENTRIES_MAX = 200_000
"""Of all routes that are remembered, together."""
TRIES = 3
"""How often a route is found in slices; if each time the subscriptions changed meanwhile, it is found in one go."""

Addresses = tuple[Address, ...]
Route = tuple[tuple[Endpoint, int], ...]
"""Endpoints, each with the number above which events are for one of its subscriptions."""


class Routes:
    """The subscriptions that ask for events, by address. Use it on one event loop."""

    def __init__(self, active: Mapping[str, Endpoint]) -> None:
        """`active` are the endpoints to which events are offered, by URI. Call `changed` when it has changed."""
        self._active = active
        self._patterns = PatternIndex[Subscription]()
        self._known: dict[Addresses, Route] = {}
        self._size = 0
        self._changes = 0

    def add(self, subscription: Subscription, pattern: Pattern) -> None:
        """Somebody asks for events."""
        self._patterns.add(subscription.id, pattern, subscription)
        self.changed()

    def remove(self, subscription: Subscription) -> None:
        """That subscription is gone."""
        self._patterns.remove(subscription.id)
        self.changed()

    def changed(self) -> None:
        """Forget the routes. A look-up under way notices it, and starts again."""
        if self._known:
            self._known, self._size = {}, 0
        self._changes += 1

    def known(self, addresses: Addresses) -> Route | None:
        """The route, if it is remembered."""
        return self._known.get(addresses)

    def find(self, addresses: Addresses) -> Route:
        """The route, found in one go if it is not remembered."""
        route = self._known.get(addresses)
        return self._keep(addresses, _starts(self._asking(addresses))) if route is None else route

    async def look_up(self, addresses: Addresses) -> None:
        """Find a route in slices, and remember it, unless the subscriptions change all the time."""
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
        """The endpoint of each subscription that asks for it, and its start; None for one that does not."""
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
    """By endpoint: the earliest start."""
    found: dict[Endpoint, int] = {}
    for each in asking:
        if each is not None:
            endpoint, start = each
            found[endpoint] = min(start, found.get(endpoint, start))
    return found
