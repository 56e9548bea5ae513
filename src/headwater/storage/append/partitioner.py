"""Chooses an event's partition (the rule of Kafka and Event Hubs, with CRC32C): by key, or round robin per call."""

from __future__ import annotations

from itertools import cycle

import google_crc32c

from ...core.limits import EventColumns
from ...core.settings import LogSettings


class Partitioner:
    """Assigns partitions for one log; only the log's committer calls it."""

    def __init__(self, settings: LogSettings) -> None:
        self._count = settings.partitions
        self.is_one = settings.partitions == 1
        """Whether every event goes to partition 0."""
        self._by, _, self._tag_key = settings.partition_by.partition(":")
        self._turn = cycle(range(self._count))

    def assign(self, columns: EventColumns, partition: int | None) -> list[int]:
        """The partition of each event of one call; `partition` is the caller's choice, if any."""
        if self._count == 1:
            return [0] * columns.count
        if partition is not None:
            return [partition] * columns.count
        turn = next(self._turn)
        return [turn if not key else partition_of(key, self._count) for key in self._keys(columns)]

    def _keys(self, columns: EventColumns) -> list[str]:
        keys = list(columns.group_keys)
        if self._by == "source":
            return [key or source for key, source in zip(keys, columns.sources, strict=True)]
        if self._by == "subject":
            return [key or each.get("subject", "") for key, each in zip(keys, columns.attributes, strict=True)]
        if self._by == "tag":
            return [key or self._tag_value(tags) for key, tags in zip(keys, columns.tags, strict=True)]
        return keys

    def _tag_value(self, tags: tuple[str, ...]) -> str:
        for tag in tags:
            key, _, value = tag.partition(":")
            if key == self._tag_key and value:
                return value
        return ""


def partition_of(key: str, count: int) -> int:
    """crc32c(key) modulo the number of partitions: the same for every producer, on every protocol."""
    return int(google_crc32c.value(key.encode())) % count
