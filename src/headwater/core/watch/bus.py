"""The bus: how notifications come from where they are emitted to those who listen, at once; nothing is kept here.

Whoever emits gets a bus by its constructor; with nobody listening, a notification costs a count. There is no other way
from an emitter to a listener, and no bus is shared by accident: there is no global one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ..clocks import wall_clock_ms
from .notification_types import EVERY_TYPE, NotificationType

_logger = logging.getLogger("headwater.bus")

TEXT_CHARS_MAX = 1024
"""Longer texts are cut: much of what is notified is what a peer has said."""
Value = str | int | float | bool
"""What an attribute may be. `NotificationType` says which it is."""


class Notification(NamedTuple):
    """What listeners get. They share it: nobody may change the attributes."""

    type: NotificationType
    time: int
    """ms since 1970 UTC."""
    attributes: Mapping[str, Value]
    """All of them in their order, `eventType` and `time` included; one without a value is left out."""


Listener = Callable[[Notification], None]
"""Called in the thread that emits, perhaps under its locks: hands the notification over, and returns."""


class Bus:
    """Hands each notification to all who listen to its type. Every method may be called from any thread."""

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        """`clock` answers ms since 1970 UTC."""
        self._clock = clock or wall_clock_ms
        self._changing = threading.Lock()
        self._listeners: dict[NotificationType, tuple[Listener, ...]] = {}
        """Only types that somebody listens to. Replaced, never changed, so that it is read without a lock."""
        self._counting = threading.Lock()
        self._counts: dict[NotificationType, int] = {}

    @property
    def counts(self) -> Mapping[NotificationType, int]:
        """How often each type was emitted, whether somebody listened or not; a copy. Types never emitted are not in."""
        with self._counting:
            return dict(self._counts)

    def emit(self, type: NotificationType, /, **attributes: Value | None) -> None:
        """Notify those who listen to that type, in the order in which they came.

        Attributes come in the catalog's order; one that is None is left out. Raises nothing: what a listener raises is
        logged, and is no business of the emitter.
        """
        self.emit_built(type, lambda: attributes)

    def emit_built(self, type: NotificationType, build: Callable[[], Mapping[str, Value | None]]) -> None:
        """As `emit`, where attributes take some work: `build` is called, once, only if somebody listens."""
        with self._counting:
            self._counts[type] = self._counts.get(type, 0) + 1
        if (listeners := self._listeners.get(type)) is None:
            return
        now, attributes = self._clock(), build()
        notified: dict[str, Value] = {"eventType": type.value, "time": now}
        for name, value in attributes.items():
            if value is not None:
                notified[name] = _bounded(value) if isinstance(value, str) else value
        notification = Notification(type, now, notified)
        for listener in listeners:
            try:
                listener(notification)
            except Exception:
                _logger.exception("a listener to %s failed", type.value)

    def subscribe(self, listener: Listener, types: Iterable[NotificationType] = EVERY_TYPE) -> Callable[[], None]:
        """Call the listener with every notification of these types, until the answered callable is called.

        It may still be called once more by a thread that was about to.
        """
        wanted = frozenset(types)

        def listening(notification: Notification) -> None:  # one of its own, so that it is known from others
            listener(notification)

        with self._changing:
            self._listeners = {
                type: (*self._listeners.get(type, ()), *((listening,) if type in wanted else ()))
                for type in self._listeners.keys() | wanted
            }
        return lambda: self._unsubscribe(listening)

    def _unsubscribe(self, listening: Listener) -> None:
        with self._changing:
            staying = {
                type: tuple(each for each in listeners if each is not listening)
                for type, listeners in self._listeners.items()
            }
            self._listeners = {type: listeners for type, listeners in staying.items() if listeners}


def _bounded(text: str) -> str:
    """Of bounded length, and what every listener can write: half a surrogate pair is replaced by a question mark."""
    cut = text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode()
