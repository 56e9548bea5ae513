"""The servers of a shared home as entities: the role and the lag of each, as it reported them to the home."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from ...core.access import Guard, Right, User
from ...core.errors import StorageUnavailable
from ...core.limits import show
from ...homes.postgres.lease import LeaseStanding
from ...homes.postgres.servers import HEARD_S, ServerReport
from ...management.ports import Attributes, ReadOnly
from ...management.statuses import OperationRefused, Status

logger = logging.getLogger("headwater.server")

KEPT_S = 1.0
"""The home is queried at most this often, which is how often servers report."""


class HomeServers(ReadOnly):
    """See `management.entities`. All calls are on the event loop; the home is queried in a thread."""

    def __init__(
        self,
        guard: Guard,
        reports: Callable[[], Sequence[ServerReport]] | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        standing: Callable[[], LeaseStanding | None] = lambda: None,
    ) -> None:
        """`reports` queries the home, may block, and raises StorageUnavailable; None if the server shares no home.
        `standing` is the last known holder of the lease; None before the first query."""
        self._guard, self._reports, self._clock, self._standing = guard, reports, clock, standing
        self._known: dict[str, ServerReport] = {}
        self._asked_at = self._tried_at = float("-inf")
        self._asking = asyncio.Lock()

    async def names(self, user: User) -> Sequence[str]:
        return list(await self._all()) if user.may(Right.MANAGE, "*") else []

    async def read(self, user: User, name: str) -> Attributes:
        self._guard.authorize(user, Right.MANAGE, "*")
        report = (await self._all()).get(name)
        heard_s = 0.0 if report is None else report.heard_s + self._clock() - self._asked_at
        if report is None:
            raise OperationRefused(Status.NOT_FOUND, f"there is no server {show(name)} of this home")
        standing = self._standing()
        if standing is not None and (standing.holder, standing.term.number) != (report.name, report.term):
            standing = None
        return {
            "server": report.name,
            "addresses": dict(report.addresses),
            "role": report.role,
            "term": report.term or None,
            "since": None if standing is None or standing.since is None else round(standing.since * 1000),
            "why": None if standing is None else standing.why or None,
            "lag": report.lag_events,
            "lagMs": None if report.lag_s is None else round(report.lag_s * 1000),
            "ahead": report.ahead or None,
            "version": report.version,
            "heardMs": round(heard_s * 1000),
            "runs": heard_s < HEARD_S,
        }

    async def _all(self) -> dict[str, ServerReport]:
        """By name. If the home does not answer, this is its last answer."""
        if self._reports is None:
            return {}
        async with self._asking:
            if self._clock() - self._tried_at >= KEPT_S:
                try:
                    self._known = _named(await asyncio.to_thread(self._reports))
                    self._asked_at = self._clock()
                except StorageUnavailable as error:
                    logger.debug("cannot refresh the list of servers: %s", error)
                self._tried_at = self._clock()
            return self._known


def _named(reports: Sequence[ServerReport]) -> dict[str, ServerReport]:
    """If several servers were started under one name, the later ones get a number."""
    found: dict[str, ServerReport] = {}
    for report in reports:
        same = sum(each.name == report.name for each in found.values())
        found[f"{report.name} ({same + 1})" if same else report.name] = report
    return found
