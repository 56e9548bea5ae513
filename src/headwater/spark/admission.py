"""How much a stream takes at a trigger: by what Spark says (a ReadLimit) and by the options, together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from .planning import shares
from .read_options import ReadOptions


class Limits(NamedTuple):
    """What one trigger may take; None = no limit. Events are counted before `query` and `partitions` leave any out."""

    events_max: int | None = None
    events_min: int | None = None
    bytes_max: int | None = None


class Backlog(NamedTuple):
    """What a log has for the stream: the events in (after, upto]."""

    after: int
    upto: int

    @property
    def events(self) -> int:
        """How many, but for gaps in the numbers."""
        return max(0, self.upto - self.after)


def default_limit(options: ReadOptions) -> ReadLimit:
    """One of the limits in the options. Spark knows none that combines them; the others are applied all the same."""
    if options.trigger_events_max is not None:
        return ReadMaxRows(options.trigger_events_max)
    if options.trigger_bytes_max is not None:
        return ReadMaxBytes(options.trigger_bytes_max)
    if options.trigger_events_min is not None:
        return ReadMinRows(options.trigger_events_min)
    return ReadAllAvailable()


def limits_of(options: ReadOptions, limit: ReadLimit) -> Limits:
    """The limits of a trigger; what the engine says wins. If it asks for all that there is, there are none."""
    if isinstance(limit, ReadAllAvailable):
        return Limits()
    given = Limits(options.trigger_events_max, options.trigger_events_min, options.trigger_bytes_max)
    if isinstance(limit, ReadMaxRows):
        return given._replace(events_max=limit.max_rows)
    if isinstance(limit, ReadMinRows):
        return given._replace(events_min=limit.min_rows)
    if isinstance(limit, ReadMaxBytes):
        return given._replace(bytes_max=limit.max_bytes)
    return given


def admit_events(backlogs: Mapping[str, Backlog], events_max: int | None) -> dict[str, Backlog]:
    """At most that many events, split among the logs in proportion to what each has; at least one of each that has any,
    so that no log starves beside a busy one."""
    total = sum(backlog.events for backlog in backlogs.values())
    if events_max is None or total <= events_max:
        return dict(backlogs)
    parts = shares(events_max, [backlog.events for backlog in backlogs.values()])
    return {
        log: backlog._replace(upto=min(backlog.upto, backlog.after + part))
        for (log, backlog), part in zip(backlogs.items(), parts, strict=True)
    }
