"""Reports the progress of a named stream to the server, which shows its lag. The stream never waits for it.

When Spark plans a batch, the stream reports its start, which is committed. Spark does not call `commit` of a source
earlier, and not for the last batch. If the server cannot accept a report (because it is older or unreachable), the
report is sent later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from ...core.errors import EventLogError
from ...flight.client import BulkClient

logger = logging.getLogger("headwater.spark")
AGAIN_S = 30.0
"""The interval at which an unchanged position is reported, and after which a failed report is repeated, so that a
restarted server soon knows the position.
"""


class PositionReports:
    """The positions reported for one stream. It is sent to the workers with a reader, so it holds no connection."""

    def __init__(self, stream: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._told: dict[str, tuple[int, float]] = {}
        """By log: the position, and when."""
        self._failed_at: float | None = None
        self._has_warned = False

    def tell(self, client: BulkClient, positions: Mapping[str, int]) -> None:
        """Report everything up to these numbers, by log, as done. Raises no errors of the call."""
        now = self._clock()
        if self._failed_at is not None and now - self._failed_at < AGAIN_S:
            return
        for log, position in positions.items():
            told = self._told.get(log)
            if told is not None and told[0] == position and now - told[1] < AGAIN_S:
                continue
            try:
                client.report_position(log, self._stream, position)
            except EventLogError as error:
                self._failed_at = now
                self._warn(error)
                return
            self._told[log] = position, now
        self._failed_at = None

    def _warn(self, error: EventLogError) -> None:
        if not self._has_warned:
            logger.warning(
                "stream %r: cannot report its position to the server; the stream continues: %s", self._stream, error
            )
        self._has_warned = True
