"""Determines whether spans are collected. If not, no part of OpenTelemetry is imported."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...formats.installing import how_to_install
from ...formats.settings.declaration import InvalidConfiguration
from ..config.settings import Tracing

LIBRARY = "opentelemetry"
AGAIN_S = 60.0
MESSAGES_MAX = 100
"""How many messages are remembered; there are a few, each with its own words."""


class Seldom(logging.Handler):
    """Passes a message to the root's handlers, unless the same message was passed less than a minute ago. OpenTelemetry
    repeats its log messages while a collector is unreachable."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._told: dict[tuple[str, str], float] = {}
        """When each message was passed on, by logger and message without its arguments."""

    def emit(self, record: logging.LogRecord) -> None:
        now, key = self._clock(), (record.name, str(record.msg))
        if now - self._told.get(key, float("-inf")) < AGAIN_S:
            return
        if len(self._told) >= MESSAGES_MAX:
            self._told.clear()
        self._told[key] = now
        logging.getLogger().handle(record)


def tell_seldom() -> None:
    """Route the library's messages through this handler only."""
    library = logging.getLogger(LIBRARY)
    library.handlers[:] = [Seldom()]
    library.propagate = False


if TYPE_CHECKING:
    from .span_exporter import ExportedSpans


def open_spans(settings: Tracing) -> ExportedSpans | None:
    """The span collector for these settings; None if disabled. Stop it after the last request.

    Raises InvalidConfiguration: the extra is not installed.
    """
    if settings.endpoint is None:
        return None
    try:
        from .span_exporter import ExportedSpans, otlp_exporter
    except ModuleNotFoundError as error:
        problem = f"spans require the extra [otel], but {error.name} is not installed: {how_to_install('otel')}"
        raise InvalidConfiguration(problem, "tracing.endpoint") from None
    tell_seldom()
    return ExportedSpans(settings, otlp_exporter(settings.endpoint))
