"""How far behind consumers were recently: two series for each of a limited number of consumers. Consumers that are no
longer measured are dropped first: they no longer exist, or others are further behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..core.followers import Lag
from .rings import FINE, FINE_S, Rings

LAG_SERIES = ("lag_events", "lag_seconds")
"""For each consumer: how many events it is behind the head, and the age of its next event."""
DURABLE = "durable:"
"""The name prefix of durable AMQP links: they name peers, which only users who may manage the server see."""
CONSUMERS_MAX = 100
"""The maximum number of consumers with series, which use 17 kB each."""


class LagSeries:
    """The series of consumers, by name: `LOG/OWNER/COMPONENT`; for consumers that are not registered, the kind, a
    colon, and a name that begins with the log and a slash. Everything on one event loop.
    """

    def __init__(self, consumers_max: int = CONSUMERS_MAX) -> None:
        self._consumers_max = consumers_max
        self._known: dict[str, tuple[float, tuple[Rings, ...]]] = {}
        """Each has the time of its last measurement. The most recent is last."""

    @property
    def names(self) -> Iterable[str]:
        """The consumers that have series."""
        return self._known

    def add(self, at: float, lags: Mapping[str, Lag]) -> None:
        """Add how far behind consumers are at a moment, in s since 1970. If there are too many, the first ones are
        kept.
        """
        for name, lag in list(lags.items())[: self._consumers_max]:
            _, series = self._known.pop(name, (at, None))
            series = series or tuple(Rings() for _ in LAG_SERIES)
            for each, value in zip(series, (lag.events, lag.age_ms / 1000), strict=True):
                each.put(at, value)
            self._known[name] = at, series
        for name, (measured_at, _) in list(self._known.items()):
            if len(self._known) > self._consumers_max or abs(at - measured_at) > FINE * FINE_S:
                del self._known[name]

    def values(self, name: str, consumer: str, step_s: int, now: float) -> list[float | None] | None:
        """The values of a series of a consumer, oldest first; None if there is no such series."""
        if consumer not in self._known or name not in LAG_SERIES:
            return None
        return self._known[consumer][1][LAG_SERIES.index(name)].values(step_s, now)
