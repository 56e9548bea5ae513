"""Live measurements that all watchers share. They are taken every second while there are watchers, and otherwise every
five seconds for the history.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import msgspec

from ..core.access import Right, User
from ..core.followers import Lag
from .rings import FINE_S
from .series import LOG_PEAKS, LOG_SERIES, LogSample, Sample, Series, grown_by

LOGS_SHOWN = 100
"""The maximum number of logs in one message. The logs that were most active since the previous message are chosen."""
_encode = msgspec.json.encode


class _LogPart(NamedTuple):
    name: str
    text: bytes
    """A member of an object."""


class Stats:
    """One measurement as text. It is made once, and its parts are combined for each user."""

    def __init__(self, sample: Sample, before: Sample | None) -> None:
        self._at = b'"at":%d' % round(sample.at * 1000)
        self._server = b',"server":' + _encode({**sample.counts, **sample.gauges, **sample.facts})
        ordered = sorted(sample.logs, key=lambda log: (-_activity(sample, before, log), log))
        self._logs = [_LogPart(log, _encode(log) + b":" + _encode(_shown(sample.logs[log]))) for log in ordered]

    def seen_by(self, user: User) -> bytes:
        """The part of it that a user may see, as JSON: the readable logs, and the server if the user may manage it."""
        seen = [part.text for part in self._logs if user.may(Right.READ, part.name)]
        more = len(seen) - LOGS_SHOWN
        parts = [self._at, b',"logs":{' + b",".join(seen[:LOGS_SHOWN]) + b"}"]
        if more > 0:
            parts.append(b',"other_logs":%d' % more)
        if user.may(Right.MANAGE, "*"):
            parts.append(self._server)
        return b"{" + b"".join(parts) + b"}"


class Live:
    """Takes the measurements. `run` it on the event loop until the server stops."""

    def __init__(
        self,
        sample: Callable[[], Sample],
        series: Series | None = None,
        lags: Callable[[], Awaitable[Mapping[str, Lag]]] | None = None,
    ) -> None:
        """`sample` may block for a moment: it is called in a thread. `lags` cover all lasting positions."""
        self._sample, self._lags = sample, lags
        self.series = series or Series()
        self.stats: Stats | None = None
        """The newest measurement; None if there are no watchers."""
        self._before: Sample | None = None
        self._added_at = 0.0
        self.watchers = 0
        """The number of watchers."""
        self._of_user: Counter[str] = Counter()
        self._measured: asyncio.Future[None] | None = None
        self._awake = asyncio.Event()

    async def run(self) -> None:
        """Measure repeatedly, until cancelled."""
        while True:
            sample = await asyncio.to_thread(self._sample)
            self.add(sample, await self._lags() if self._lags and self._is_for_history(sample) else None)
            self._awake.clear()
            with_nobody = 1.0 if self.watchers else float(FINE_S)
            try:
                async with asyncio.timeout(with_nobody):
                    await self._awake.wait()
            except TimeoutError:
                continue

    def add(self, sample: Sample, lags: Mapping[str, Lag] | None = None) -> None:
        """Add a measurement: to the history if it is time, and for all watchers."""
        if self._is_for_history(sample):
            self._added_at = sample.at
            self.series.add(sample, lags)
        self.stats = Stats(sample, self._before) if self.watchers else None
        self._before = sample
        if self._measured is not None and not self._measured.done():
            self._measured.set_result(None)

    def _is_for_history(self, sample: Sample) -> bool:
        return abs(sample.at - self._added_at) >= FINE_S - 0.5  # the clock may have been set back

    def look(self, user: str = "") -> None:
        """Add a watcher. The first one causes a measurement at once. Call `leave` afterwards."""
        self.watchers += 1
        self._of_user[user] += 1
        if self.watchers == 1:
            self._awake.set()

    def leave(self, user: str = "") -> None:
        """Remove a watcher."""
        self.watchers -= 1
        self._of_user[user] -= 1
        if not self._of_user[user]:
            del self._of_user[user]

    def watchers_of(self, user: str) -> int:
        """How many watchers belong to that user."""
        return self._of_user[user]

    @property
    def next(self) -> asyncio.Future[None]:
        """A future that is completed at the next measurement. All waiters share it, and must not cancel it."""
        if self._measured is None or self._measured.done():
            self._measured = asyncio.get_running_loop().create_future()
        return self._measured


def _activity(sample: Sample, before: Sample | None, log: str) -> float:
    return 0.0 if before is None else sum(grown_by(before.logs.get(log), sample.logs[log]))


def _shown(log: LogSample) -> dict[str, float]:
    named = (*zip(LOG_SERIES, log.counts, strict=True), *zip(LOG_PEAKS, log.peaks, strict=True))
    return {"head": log.head, **dict(named)}
