"""How far behind everybody is whose position lasts, furthest behind first: what the console keeps the history of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from heapq import nlargest

from ..console.lag_series import CONSUMERS_MAX
from ..core.following import Follower, FollowerKind, Lag, events_behind
from ..core.local import LocalLog
from ..core.settings import is_own
from ..management.consumers import ConsumerWatch
from ..management.ports import joined

POSITIONS_MAX = 2000
"""Positions for which an event is looked up: of webhooks each time, of all others once until they move. A group has up
to 1,024, one in each partition."""
NAME_BYTES_MAX = 2500
"""Peers make up the names of links. As many series as one may ask for at once must fit into a request line."""
_OF_ONE_PART = (FollowerKind.GROUP, FollowerKind.WEBHOOK)
"""Who has one name beside the log's."""
_Who = tuple[LocalLog, FollowerKind, str, str]


class Lags:
    """Of registered consumers, consumer groups, durable links, streams and webhooks."""

    def __init__(self, watch: ConsumerWatch, webhooks: Callable[[], Awaitable[Iterable[Follower]]]) -> None:
        """`webhooks` tells where they stand; it is asked on the event loop."""
        self._watch, self._webhooks = watch, webhooks

    async def now(self) -> Mapping[str, Lag]:
        """By name, those furthest behind first; of a group that of the partition furthest behind, and the oldest event.

        What cannot be read, takes too many look-ups, or has too long a name, is left out.
        """
        return await asyncio.to_thread(self._measured, await self._webhooks())

    def _measured(self, webhooks: Iterable[Follower]) -> Mapping[str, Lag]:
        positions: dict[_Who, list[Follower]] = {}
        for follower in (*self._watch.lasting(), *webhooks):
            if not is_own(follower.log.name):
                positions.setdefault(_who(follower), []).append(follower)
        left, lags = POSITIONS_MAX, dict[str, Lag]()
        for of_one in nlargest(CONSUMERS_MAX, positions.values(), key=_events_behind):
            name = name_of(of_one[0])
            asked = sum(events_behind(each.log, each.after, each.upto) > 0 for each in of_one)
            if asked > left or len(name.encode()) > NAME_BYTES_MAX:
                continue
            left -= asked
            measured = [self._watch.measured(each) for each in of_one]
            known = [lag for lag in measured if lag is not None]
            if len(known) == len(measured):
                lags[name] = Lag(max(lag.events for lag in known), max(lag.age_ms for lag in known))
        return lags


def name_of(follower: Follower) -> str:
    """Its name as an entity; but of registered consumers, its kind and a colon, which no log's name has, before that.

    A webhook's is `LOG/ID`. A comma, which stands between names of series, is %2C.
    """
    kind, parts = follower.kind, [follower.log.name, follower.owner]
    if kind not in _OF_ONE_PART:
        parts.append(follower.component)
    return ("" if kind is FollowerKind.REGISTERED else f"{kind}:") + joined(*parts).replace(",", "%2C")


def _who(follower: Follower) -> _Who:
    """All partitions of a group are one."""
    component = "" if follower.kind is FollowerKind.GROUP else follower.component
    return follower.log, follower.kind, follower.owner, component


def _events_behind(positions: Iterable[Follower]) -> int:
    return max(events_behind(each.log, each.after, each.upto) for each in positions)
