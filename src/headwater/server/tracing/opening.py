"""Whether spans are collected: nothing of OpenTelemetry is imported where they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.installing import how_to_install
from ..errors import InvalidConfiguration
from .seldom import tell_seldom
from .settings import Tracing

if TYPE_CHECKING:
    from .exported import ExportedSpans


def open_spans(settings: Tracing) -> ExportedSpans | None:
    """Who collects spans by these settings; None where nobody does. Stop it when the last request is over.

    Raises InvalidConfiguration: the extra is not installed.
    """
    if settings.endpoint is None:
        return None
    try:
        from .exported import ExportedSpans, otlp_exporter
    except ModuleNotFoundError as error:
        problem = f"spans take the extra [otel], of which {error.name} is not installed: {how_to_install('otel')}"
        raise InvalidConfiguration(problem, "tracing.endpoint") from None
    tell_seldom()
    return ExportedSpans(settings, otlp_exporter(settings.endpoint))
