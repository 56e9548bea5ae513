"""The events that a log's settings and consumers drop: for `maintenance.tasks`, and to preview a change."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.consumer import Consumer
from ...core.local import LocalLog
from ...core.settings import LogSettings
from ..segments.segment import Segment


def silent(settings: LogSettings, consumers: Sequence[Consumer], now: int) -> list[Consumer]:
    """The consumers that were silent for longer than the settings allow."""
    age = settings.consumer_age_ms_max
    return [] if age is None else [each for each in consumers if now - each.seen_at > age]


def kept_from(
    log: LocalLog,
    segments: Sequence[Segment],
    settings: LogSettings,
    consumers: Sequence[Consumer],
    now: int,
    ahead_ms: int = 0,
) -> int:
    """The number at which the log begins after these settings are applied, with these consumers except the silent ones.

    `ahead_ms` is how much later they are applied: events are older then, while consumers may become active.
    """
    gone = silent(settings, consumers, now)
    lowest = min((each.acknowledged for each in consumers if each not in gone), default=None)
    below = log.first_retained
    if settings.retention_ms is not None:
        below = max(below, log.sequence_number_at(now + ahead_ms - settings.retention_ms))
    if settings.retention_bytes is not None:
        below = max(below, _below_for_bytes(segments, settings.retention_bytes))
    if settings.retention_until_acknowledged and lowest is not None:
        below = max(below, lowest + 1)
    below = min(below, log.head() + 1)
    return below if lowest is None else min(below, lowest + 1)


def _below_for_bytes(segments: Sequence[Segment], allowed: int) -> int:
    """The number below which whole segments must be removed so that the rest fits the allowed bytes."""
    total = 0
    for segment in reversed(segments):
        total += segment.end
        if total > allowed:
            return segment.last + 1 if segment is not segments[-1] else segment.first
    return 0
