"""The bus that passes notifications immediately from emitters to listeners; nothing is stored here.

An emitter gets a bus in its constructor; without listeners, a notification costs one count. There is no other path from
an emitter to a listener, and no global bus, so no bus is shared by accident.
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
"""Longer texts are truncated: much of a notification is text from peers."""
Value = str | int | float | bool
"""The types of an attribute. `NotificationType` says which type it has."""


class Notification(NamedTuple):
    """A notification. Listeners share it: they must not change the attributes."""

    type: NotificationType
    time: int
    """ms since 1970 UTC."""
    attributes: Mapping[str, Value]
    """All attributes in order, including `eventType` and `time`; attributes without a value are left out."""


Listener = Callable[[Notification], None]
"""Called in the emitting thread, perhaps under its locks: must hand the notification over and return."""


class Bus:
    """Passes each notification to all listeners of its type. Every method may be called from any thread."""

    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        """`clock` returns ms since 1970 UTC."""
        self._clock = clock or wall_clock_ms
        self._changing = threading.Lock()
        self._listeners: dict[NotificationType, tuple[Listener, ...]] = {}
        """Contains only types with listeners. It is replaced, never changed, so that it can be read without a lock."""
        self._counting = threading.Lock()
        self._counts: dict[NotificationType, int] = {}

    @property
    def counts(self) -> Mapping[NotificationType, int]:
        """How often each type was emitted, with or without listeners; a copy. Types never emitted are not included."""
        with self._counting:
            return dict(self._counts)

    def emit(self, type: NotificationType, /, **attributes: Value | None) -> None:
        """Notify the listeners of that type, in the order in which they subscribed.

        Attributes come in the catalog's order; None values are left out. Raises nothing: a listener's exception is
        logged and does not affect the emitter.
        """
        self.emit_built(type, lambda: attributes)

    def emit_built(self, type: NotificationType, build: Callable[[], Mapping[str, Value | None]]) -> None:
        """Like `emit`, for attributes that take some work: `build` is called once, and only if there is a listener."""
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
        """Call the listener with every notification of these types, until the returned callable is called.

        A thread that was about to call it may still do so once.
        """
        wanted = frozenset(types)

        def listening(notification: Notification) -> None:  # a separate function, so that it differs from the others
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
    """Truncated to the maximum length; lone surrogates, which some listeners cannot write, become question marks."""
    cut = text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"
    return cut if cut.isascii() else cut.encode("utf-8", "replace").decode()
