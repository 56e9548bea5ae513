"""OpenTelemetry spans with the names of its semantic conventions, exported by OTLP on their own thread. Finished spans
are put into a bounded queue. When it is full, the oldest are dropped, and nothing waits."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from yarl import URL

from ... import __version__
from ...core.event import Event
from ...core.watch.spans import CallSpan, Spans
from ...formats.tracing import TRACEPARENT, headers_of, trace_of_headers
from ..config.settings import Tracing
from ..front.meter import METHODS

logger = logging.getLogger("headwater.server")

QUEUE_SPANS_MAX = 8192
BATCH_SPANS_MAX = 512
EXPORT_EVERY_MS = 1000
STOP_S_MAX = 3.0
"""How long a stopping server waits for the export of remaining spans."""
LINKS_MAX = 32
"""How many traces of events that were appended together are linked."""
VALUE_CHARS_MAX = 512
_TRACES_PATH = "/v1/traces"
_FUTOIN = "/futoin/"
"""After the log name, a path may contain a password (FTN5, 3.2)."""
_WEBSOCKET = "GET"
_propagator = TraceContextTextMapPropagator()


def otlp_exporter(endpoint: str) -> SpanExporter:
    """The exporter to the collector at that URL. Its headers, certificate and timeout come from OpenTelemetry's own
    environment variables (OTEL_EXPORTER_OTLP_HEADERS and others).
    """
    base = endpoint.rstrip("/")
    return OTLPSpanExporter(endpoint=base if base.endswith(_TRACES_PATH) else base + _TRACES_PATH)


class ExportedSpans(Spans):
    """See core.spans.Spans."""

    def __init__(self, settings: Tracing, exporter: SpanExporter, stop_s_max: float = STOP_S_MAX) -> None:
        self._stop_s_max = stop_s_max
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(settings.sampled_percent / 100)),
            resource=Resource.create({"service.name": settings.service_name, "service.version": __version__}),
            span_limits=SpanLimits(max_span_attribute_length=VALUE_CHARS_MAX),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                exporter,
                max_queue_size=QUEUE_SPANS_MAX,
                max_export_batch_size=BATCH_SPANS_MAX,
                schedule_delay_millis=EXPORT_EVERY_MS,
            )
        )
        self._tracer = self._provider.get_tracer("headwater", __version__)

    def now_ns(self) -> int:
        return time.time_ns()

    def request(self, scope: Mapping[str, Any], route: str, status: int, duration_s: float) -> None:
        ended_ns = time.time_ns()
        given = scope.get("method", _WEBSOCKET)
        method = given if given in METHODS else "_OTHER"
        attributes = {
            "http.request.method": method,
            "url.scheme": _scheme(scope),
            "url.path": _plain(_path(scope["path"])),
            "network.protocol.version": scope.get("http_version", ""),
        }
        if method != given:
            attributes["http.request.method_original"] = given
        if route:
            attributes["http.route"] = route
        span = self._tracer.start_span(
            f"{method if method == given else 'HTTP'} {route}".rstrip(),
            context=_context(trace_of_headers(scope["headers"])),
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=ended_ns - int(duration_s * 1e9),
        )
        _answered(span, status, fails_from=500)
        span.end(ended_ns)

    def appended(self, log: str, events: Sequence[Event], began_ns: int, problem: str) -> None:
        """See Spans. If all events with a trace are in the same trace, the span is in it too."""
        parents = _traces(events)
        span = self._tracer.start_span(
            f"append {log}",
            context=parents[0] if len(parents) == 1 else Context(),
            kind=SpanKind.PRODUCER,
            attributes={
                "messaging.system": "headwater",
                "messaging.operation.name": "append",
                "messaging.operation.type": "send",
                "messaging.destination.name": log,
                "messaging.batch.message_count": len(events),
            },
            links=[Link(get_current_span(parent).get_span_context()) for parent in parents],
            start_time=began_ns,
        )
        _failed(span, problem)
        span.end()

    def calls(self, uri: str, shown: str, trace: Mapping[str, str]) -> Call:
        url = URL(uri)
        span = self._tracer.start_span(
            "POST",
            context=_context(trace),
            kind=SpanKind.CLIENT,
            attributes={
                "http.request.method": "POST",
                "url.full": shown,
                "server.address": url.host or "",
                "server.port": url.port or 0,
            },
        )
        return Call(span)

    async def stop(self) -> None:
        """Export the remaining spans, for a few seconds at most. Later spans are not collected."""
        loop, is_done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            try:
                self._provider.shutdown()
            finally:
                with suppress(RuntimeError):  # the loop is closed: there are no more waiters
                    loop.call_soon_threadsafe(is_done.set)

        threading.Thread(target=shut_down, name="headwater-spans-end", daemon=True).start()
        try:
            async with asyncio.timeout(self._stop_s_max):
                await is_done.wait()
        except TimeoutError:
            logger.warning("the span collector does not respond; the last spans are lost")


class Call(CallSpan):
    """See core.spans.CallSpan."""

    __slots__ = ("_span", "headers")

    def __init__(self, span: Span) -> None:
        self._span = span
        headers: dict[str, str] = {}
        _propagator.inject(headers, set_span_in_context(span, Context()))
        self.headers: Mapping[str, str] = headers

    def end(self, status: int, problem: str) -> None:
        _answered(self._span, status, fails_from=400)
        _failed(self._span, problem)
        self._span.end()


def _answered(span: Span, status: int, fails_from: int) -> None:
    if not status:
        return
    span.set_attribute("http.response.status_code", status)
    if status >= fails_from:
        span.set_attribute("error.type", str(status))
        span.set_status(Status(StatusCode.ERROR))


def _failed(span: Span, problem: str) -> None:
    if problem:
        span.set_attribute("error.type", _plain(problem.partition(":")[0]))
        span.set_status(Status(StatusCode.ERROR, _plain(problem)))


def _plain(text: str) -> str:
    """The text in valid UTF-8. If it could not be encoded, all spans exported with it would be lost."""
    return text.encode(errors="replace").decode()[:VALUE_CHARS_MAX]


def _context(trace: Mapping[str, str]) -> Context:
    return _propagator.extract(trace, Context()) if trace else Context()


def _traces(events: Iterable[Event]) -> list[Context]:
    """The traces of the events, without duplicates."""
    found: dict[str, Context] = {}
    for event in events:
        parent = event.attributes.get(TRACEPARENT)
        if parent is not None and parent not in found and (trace := headers_of(event.attributes)):
            found[parent] = _context(trace)
            if len(found) == LINKS_MAX:
                break
    return list(found.values())


def _scheme(scope: Mapping[str, Any]) -> str:
    scheme: str = scope.get("scheme", "http")
    return {"ws": "http", "wss": "https"}.get(scheme, scheme)


def _path(path: str) -> str:
    """The path without possible secrets."""
    return "/".join(path.split("/")[:3]) if path.startswith(_FUTOIN) else path
