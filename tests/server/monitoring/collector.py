"""A collector that takes OTLP over HTTP, and keeps the spans."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.waiting import eventually

SERVER, CLIENT, PRODUCER = Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_PRODUCER
OK, ERROR = 0, 2


class Collected(NamedTuple):
    """One span."""

    name: str
    kind: int
    trace: str
    id: str
    parent: str
    """Its id, or empty."""
    attributes: dict[str, Any]
    links: list[str]
    """As `traceparent` has them, but for version and flags."""
    status: int
    service: str


class Collector:
    """On loopback; a context manager."""

    def __init__(self) -> None:
        self.spans: list[Collected] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.spans += collected(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """What the setting names."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Collector:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def named(self, name: str, count: int = 1) -> list[Collected]:
        """The spans of that name, once there are as many."""
        eventually(lambda: len(self.find(name)) >= count, lambda: [span.name for span in self.spans])
        return self.find(name)

    def find(self, name: str) -> list[Collected]:
        """Those that are there."""
        return [span for span in self.spans if span.name == name]


def collected(request: ExportTraceServiceRequest) -> list[Collected]:
    """The spans of one request."""
    return [
        Collected(
            span.name,
            span.kind,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            {each.key: _value(each.value) for each in span.attributes},
            [f"{link.trace_id.hex()}-{link.span_id.hex()}" for link in span.links],
            span.status.code,
            next(_value(each.value) for each in resource.resource.attributes if each.key == "service.name"),
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))
