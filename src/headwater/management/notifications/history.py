"""Keeps notifications in a log, so that the server's history can be read and queried like any other.

Each notification is one event: its type is the notification's; its data is all attributes as JSON; its tags are the
usual search keys (`log:orders`, `consumer:spark/archiver`, `user:alice`). Appends to this log cause no notifications.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence

from ...core.errors import Closed, EventLogError, InvalidInput
from ...core.event import Event
from ...core.local import LocalLog
from ...core.watch.bus import Bus, Notification
from ...core.watch.threads import Threads
from ...formats.cloudevents import format_time
from .queue import NotificationQueue

_logger = logging.getLogger("headwater.management")

SOURCE = "/server"
"""The CloudEvents source of the server's notifications."""
WAITING_MAX = 10_000
BATCH_MAX = 500
RETRY_S = 1.0
CLOSE_S = 5.0
TAG_CHARS_MAX = 200
_TAGGED = ("log", "user", "account", "group", "owner", "component", "endpoint", "link")


class History:
    """Appends every notification, from `start` to `close`, on its own thread, so that a slow disk does not delay
    anything else.
    """

    def __init__(
        self,
        bus: Bus,
        log: LocalLog,
        *,
        waiting_max: int = WAITING_MAX,
        retry_s: float = RETRY_S,
        threads: Threads | None = None,
    ) -> None:
        self._log, self._retry_s = log, retry_s
        self._awake = threading.Event()
        self._is_stopping = threading.Event()
        self._queue = NotificationQueue(bus, self._awake.set, waiting_max=waiting_max)
        self._threads = threads or Threads(bus)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to append, starting with the notifications that were emitted since construction."""
        self._thread = self._threads.start("history", self._run, self._is_stopping)

    def close(self) -> None:
        """Append the notifications that have been emitted so far, and end. After a few seconds, drop the rest."""
        self._is_stopping.set()
        self._awake.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
        self._queue.close()

    def _run(self) -> None:
        while True:
            self._awake.wait()
            self._awake.clear()
            while batch := self._queue.take(BATCH_MAX, looks_max=BATCH_MAX):
                if not self._is_kept([event_of(notification) for notification in batch]):
                    return
            if self._is_stopping.is_set():
                return

    def _is_kept(self, events: Sequence[Event]) -> bool:
        """Append; retry while the disk is full. False if the log is closed, or the server stops in the meantime."""
        is_reported = False
        while True:
            try:
                self._log.append(events)
                return True
            except Closed:
                return False
            except InvalidInput as error:  # the log was changed, and now accepts only smaller events
                _logger.error("cannot store a notification: %s", error)
                return len(events) == 1 or all([self._is_kept([event]) for event in events])
            except EventLogError as error:
                if self._is_stopping.wait(self._retry_s):
                    _logger.info(
                        "%d notifications were not stored because the server is stopping: %s", len(events), error
                    )
                    return False
                if not is_reported:  # a server of a home that has just started or ended its turn needs no warning
                    is_reported = True
                    _logger.error("cannot store notifications; retrying: %s", error)
            except Exception:  # regardless of the error, continue with the next notifications
                _logger.exception("cannot store notifications; dropped %d", len(events))
                return True


def event_of(notification: Notification) -> Event:
    """The event that records a notification."""
    attributes = notification.attributes
    tags = []
    for name in _TAGGED:
        value = attributes.get(name)
        if isinstance(value, str) and 0 < len(value) <= TAG_CHARS_MAX and value.isprintable():
            tags.append(f"{name}:{value}")
    return Event(
        notification.type.value,
        json.dumps(dict(attributes), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"),
        tuple(tags),
        source=SOURCE,
        attributes={"datacontenttype": "application/json", "time": format_time(notification.time)},
    )
