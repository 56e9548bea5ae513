"""A thread that makes changes one after the other, for callers with a timeout.

A commit at another server can take as long as that server does not answer. After the timeout, a change that has not
begun is cancelled. For a change that has begun, the caller learns that the outcome is unknown. The change then
continues, and others wait for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, TypeVar

from ...core.errors import Closed, OutcomeUnknown, StorageUnavailable

logger = logging.getLogger("headwater.storage")

_R = TypeVar("_R")
_Task = tuple[Callable[[], Any], "Future[Any]"]


class Patient:
    """Makes changes until `close`. Safe to call from any thread."""

    def __init__(self, name: str) -> None:
        """`name`: the name used in errors for the changed object."""
        self._name = name
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._is_closed = False
        self._has_landed = threading.Event()
        self._unknown: set[Future[Any]] = set()
        """Running changes whose callers got an unknown outcome."""
        self._thread = threading.Thread(target=self._run, name="headwater-changes", daemon=True)
        self._thread.start()

    def do(self, change: Callable[[], _R], patience_s: float) -> _R:
        """Return the result of the change, or raise its error.

        After `patience_s`, raises StorageUnavailable: nothing was changed; or OutcomeUnknown. Raises Closed.
        """
        if threading.current_thread() is self._thread:
            return change()
        if self._is_closed:
            raise Closed(self._name)
        future: Future[_R] = Future()
        self._tasks.put((change, future))
        wait((future,), patience_s)
        if future.done():
            return future.result()
        if future.cancel():
            raise StorageUnavailable(
                f"{self._name}: an earlier change is not confirmed yet",
                reason="the home does not answer; try again later",
            )
        self._unknown.add(future)
        future.add_done_callback(self._landed)
        raise OutcomeUnknown(self._name)

    @property
    def is_settled(self) -> bool:
        """Whether the outcome of every change is known."""
        return not self._unknown

    def take_landed(self) -> bool:
        """Whether a change reported as of unknown outcome was made since the last call."""
        has_landed = self._has_landed.is_set()
        self._has_landed.clear()
        return has_landed

    def close(self) -> None:
        """Accept no more changes; accepted ones are still tried."""
        self._is_closed = True
        self._tasks.put(None)

    def _landed(self, future: Future[Any]) -> None:
        if (error := future.exception()) is None:
            self._has_landed.set()
        else:
            logger.warning("%s: the outcome of a change is unknown: %s", self._name, error)
        self._unknown.discard(future)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            change, future = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = change()
            except BaseException as error:  # passed to the caller
                future.set_exception(error)
            else:
                future.set_result(result)
            del task, change, future
