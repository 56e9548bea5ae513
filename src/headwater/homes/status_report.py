"""Reports a server's status to its home once a second, so that the home knows all its servers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..core.clocks import boot_time_s
from ..core.errors import EventLogError, StorageUnavailable
from ..core.watch.threads import Threads

if TYPE_CHECKING:
    from .postgres.growth import Growth
    from .postgres.home import PostgresHome
    from .postgres.members import Member
    from .postgres.servers import ServerReport

logger = logging.getLogger("headwater.homes")

REPORT_S = 1.0
GROWTH_S = 30.0
"""Interval at which the sizes of the home's tables are queried."""


class Reporting:
    """A thread that sends reports from `start` to `stop`."""

    def __init__(
        self, home: PostgresHome, report: Callable[[], ServerReport], member: Callable[[], Member | None]
    ) -> None:
        """`home`: a home whose connections time out soon. `report` returns the server's status; `member` the evidence
        of its copy, or None while it has no copy.
        """
        self._home, self._report, self._member = home, report, member
        self.growth: Growth | None = None
        """The sizes of the home's tables at the last query."""
        self._asked_at = float("-inf")
        self._is_news = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, threads: Threads) -> None:
        """Start the thread."""
        self._thread = threads.start("reporting", self._run, self._stopping)

    def hasten(self) -> None:
        """Send the next report now."""
        self._is_news.set()

    def stop(self, *, leaves: bool) -> None:
        """Send no more reports. `leaves`: delete the server's report; otherwise it expires after a while."""
        self._stopping.set()
        self.hasten()
        if leaves and self._thread is not None:
            self._thread.join()
            try:
                self._home.leave()
            except StorageUnavailable as error:
                logger.info("cannot report that this server has stopped: %s", error)

    def _run(self) -> None:
        while True:
            self._is_news.clear()
            try:
                self._home.tell_of(self._report())
                if (member := self._member()) is not None:
                    self._home.enter_member(member)
                if boot_time_s() > self._asked_at + GROWTH_S:
                    self.growth, self._asked_at = self._home.growth(), boot_time_s()
            except StorageUnavailable as error:  # the driver logs it and keeps trying
                logger.debug("cannot report the status of this server: %s", error)
            except (EventLogError, OSError) as error:
                logger.warning("cannot read the evidence of the copy: %s", error)
            self._is_news.wait(REPORT_S)
            if self._stopping.is_set():
                return
