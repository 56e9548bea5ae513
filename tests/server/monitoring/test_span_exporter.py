"""How spans go out: not on the thread of whoever tells them, in a bounded queue, and for a bounded time at the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from headwater.core import Event
from headwater.server.config.settings import Tracing
from headwater.server.monitoring.span_exporter import BATCH_SPANS_MAX, LINKS_MAX, QUEUE_SPANS_MAX, ExportedSpans
from tests.waiting import eventually

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SCOPE: dict[str, Any] = {"type": "http", "method": "GET", "path": "/logs", "headers": [], "http_version": "1.1"}


class Exporter(SpanExporter):
    """Takes spans when it is let."""

    def __init__(self) -> None:
        self.may_go_on, self.threads = threading.Event(), set[threading.Thread]()
        self.spans: list[ReadableSpan] = []
        self.is_asked = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.threads.add(threading.current_thread())
        self.is_asked.set()
        self.may_go_on.wait()
        self.spans += spans
        return SpanExportResult.SUCCESS


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    made = Exporter()
    yield made
    made.may_go_on.set()


def collected(exporter: Exporter, settings: Tracing, tell: Any) -> list[ReadableSpan]:
    """What is exported of what is told."""
    exporter.may_go_on.set()
    spans = ExportedSpans(settings, exporter)
    tell(spans)
    asyncio.run(spans.stop())
    return exporter.spans


@pytest.mark.filterwarnings("ignore")
def test_while_the_collector_hangs_nobody_waits_and_no_more_is_kept_than_the_queue_has(exporter: Exporter) -> None:
    spans = ExportedSpans(Tracing(), exporter)
    for _ in range(3 * QUEUE_SPANS_MAX):
        spans.request(SCOPE, "/logs", 200, 0.001)
    assert exporter.is_asked.wait(60)
    exporter.may_go_on.set()
    asyncio.run(spans.stop())
    assert 0 < len(exporter.spans) <= QUEUE_SPANS_MAX + BATCH_SPANS_MAX
    assert threading.main_thread() not in exporter.threads


def test_the_end_waits_for_a_collector_that_hangs_no_longer_than_it_may(
    exporter: Exporter, caplog: pytest.LogCaptureFixture
) -> None:
    spans = ExportedSpans(Tracing(), exporter, stop_s_max=0.05)
    spans.request(SCOPE, "/logs", 200, 0.001)
    asyncio.run(spans.stop())
    assert exporter.spans == [] and "the span collector does not respond" in caplog.text
    exporter.may_go_on.set()
    eventually(lambda: len(exporter.spans) == 1)


def test_of_traces_that_begin_here_as_many_are_sampled_as_is_set(exporter: Exporter) -> None:
    def tell(spans: ExportedSpans) -> None:
        for headers in ([], [(b"traceparent", PARENT.encode())], [(b"traceparent", b"00-x")]):
            spans.request({**SCOPE, "headers": headers}, "/logs", 200, 0.001)

    [span] = collected(exporter, Tracing(sampled_percent=0), tell)
    assert span.parent is not None and f"{span.parent.span_id:016x}" == PARENT.split("-")[2]


def test_a_span_has_the_time_that_its_request_took(exporter: Exporter) -> None:
    [span] = collected(exporter, Tracing(), lambda spans: spans.request(SCOPE, "/logs", 200, 0.25))
    assert span.start_time is not None and span.end_time is not None
    assert span.end_time - span.start_time == 250_000_000


def test_no_answer_is_no_status_and_a_fault_is_an_error(exporter: Exporter) -> None:
    def tell(spans: ExportedSpans) -> None:
        for status in (0, 404, 503):
            spans.request(SCOPE, "/logs", status, 0.001)

    found = collected(exporter, Tracing(), tell)
    attributes = [(span.attributes or {}).get("http.response.status_code") for span in found]
    assert (attributes, [span.status.is_ok for span in found]) == ([None, 404, 503], [True, True, False])


def test_links_are_bounded_and_a_malformed_trace_is_none(exporter: Exporter) -> None:
    events = [Event("A", attributes={"traceparent": f"00-{index:032x}-00f067aa0ba902b7-01"}) for index in range(100)]
    bad = Event("A", attributes={"traceparent": "00-x"})

    def tell(spans: ExportedSpans) -> None:
        spans.appended("a", events, spans.now_ns(), "")
        spans.appended("a", [bad], spans.now_ns(), "E: x")

    [many, none] = collected(exporter, Tracing(), tell)
    assert (len(many.links), many.parent) == (LINKS_MAX, None)
    assert (len(none.links), none.parent, none.status.is_ok) == (0, None, False)
    assert (none.attributes or {})["error.type"] == "E"


def test_text_that_cannot_be_encoded_costs_no_span(exporter: Exporter) -> None:
    scope = {**SCOPE, "path": "/logs/\ud800"}
    [span] = collected(exporter, Tracing(), lambda spans: spans.request(scope, "", 404, 0.001))
    assert (span.attributes or {})["url.path"] == "/logs/?"
