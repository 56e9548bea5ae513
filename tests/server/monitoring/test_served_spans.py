"""Spans of a real server, as a collector gets them: of requests, of what came over AMQP, and of webhooks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from websockets.sync.client import connect

from headwater.amqp.protocol.message import DATA, Message, Properties
from headwater.amqp.protocol.performatives import Accepted
from tests.matrix.cases import CASES, TRACE, Case
from tests.matrix.world import CNE, LOG, World, served
from tests.matrix.writers import CneCloudEvent, document
from tests.server.running import RunningServer

from ...waiting import eventually
from .collector import CLIENT, ERROR, OK, PRODUCER, SERVER, Collector

PARENT = TRACE["traceparent"]
TRACE_ID, PARENT_ID = PARENT.split("-")[1:3]
OTHER = "00-11111111111111111111111111111111-2222222222222222-01"
UNSAMPLED = "00-33333333333333333333333333333333-4444444444444444-00"
EVENTS = json.dumps({"events": [{"type": "A", "data": "{}"}]}).encode()
JSON = {"content-type": "application/json"}
APPEND = f"/logs/{LOG}/append"
PROGRAM = [
    sys.executable, "-c", "from headwater.cli.main import main; from headwater.server.monitoring import span_exporter; "
    "span_exporter.EXPORT_EVERY_MS = 20; main()",
]  # fmt: skip
"""Exports at once: each test waits for it twice."""
_numbers = count()


class Traced(NamedTuple):
    """A server, and who collects its spans."""

    world: World
    collector: Collector


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    with Collector() as collector:
        given = ("--tracing-endpoint", collector.url, "--tracing-service-name", "log-1")
        with served(tmp_path_factory.mktemp("traced"), *given, program=PROGRAM) as world:
            world.listen()
            yield Traced(world, collector)


@pytest.fixture
def world(traced: Traced) -> World:
    return traced.world


@pytest.fixture
def collector(traced: Traced) -> Iterator[Collector]:
    """Without the spans of the tests before."""
    path = f"/barrier/{next(_numbers)}"
    traced.world.call("GET", path)
    eventually(lambda: any(span.attributes.get("url.path") == path for span in traced.collector.spans))
    traced.collector.spans.clear()
    yield traced.collector


def test_a_request_is_a_span_below_that_of_its_client(world: World, collector: Collector) -> None:
    assert world.call("POST", APPEND, EVENTS, {**JSON, **TRACE}).status == 200
    [span] = collector.named("POST /logs/{log}/append")
    assert (span.kind, span.trace, span.parent, span.status, span.service) == (SERVER, TRACE_ID, PARENT_ID, OK, "log-1")
    assert span.id not in ("", PARENT_ID)
    assert span.attributes == {
        "http.request.method": "POST",
        "http.route": "/logs/{log}/append",
        "http.response.status_code": 200,
        "url.scheme": "http",
        "url.path": APPEND,
        "network.protocol.version": "1.1",
    }


def test_the_trace_of_an_event_is_its_producers_whatever_is_collected(world: World, collector: Collector) -> None:
    assert world.call("POST", APPEND, EVENTS, {**JSON, **TRACE}).status == 200
    assert world.call("POST", APPEND, EVENTS, JSON).status == 200
    named, unnamed = collector.named("POST /logs/{log}/append", 2)
    assert (named.trace, unnamed.parent) == (TRACE_ID, "") and unnamed.trace != TRACE_ID
    head = world.log.head()
    assert [dict(event.attributes) for event in world.log.read(after=head - 2)] == [TRACE, {}]


def test_what_its_client_did_not_sample_is_not_collected(world: World, collector: Collector) -> None:
    for path, parent in ((APPEND, UNSAMPLED), (f"/dcb/{LOG}/append", PARENT)):
        assert world.call("POST", path, EVENTS, {**JSON, "traceparent": parent}).status == 200
    collector.named("POST /dcb/{log}/append")
    assert [span.name for span in collector.spans] == ["POST /dcb/{log}/append"]


def test_health_is_no_span_and_what_has_no_route_is_one_without(world: World, collector: Collector) -> None:
    assert world.call("GET", "/health/live").status == 200
    assert world.call("GET", "/nothing/here").status == 404
    assert world.call("PROPFIND", "/nothing/here").status == 404
    [span], [other] = collector.named("GET"), collector.named("HTTP")
    assert "http.route" not in span.attributes and span.status == OK
    assert (span.attributes["http.response.status_code"], span.attributes["url.path"]) == (404, "/nothing/here")
    assert other.attributes["http.request.method"] == "_OTHER"
    assert other.attributes["http.request.method_original"] == "PROPFIND"
    assert [each.name for each in collector.spans] == ["GET", "HTTP"]


def test_a_password_in_a_path_or_query_is_in_no_span(world: World, collector: Collector) -> None:
    world.call("GET", f"/futoin/{LOG}/futoin.evt.gen/1.1/ping/alice:hushhush?echo=7")
    [span] = collector.named("GET /futoin/{log}")
    assert span.attributes["url.path"] == f"/futoin/{LOG}"
    assert "hushhush" not in repr(collector.spans) and "echo" not in repr(collector.spans)


def test_a_websocket_is_one_span_when_it_is_over(world: World, collector: Collector) -> None:
    with connect(f"ws{world.url.removeprefix('http')}/futoin/{LOG}", additional_headers=TRACE) as socket:
        socket.send('{"f": "futoin.ping:1.0:ping", "p": {"echo": 1}, "rid": "C1"}')
        socket.recv()
        assert collector.find("GET /futoin/{log}") == []
    [span] = collector.named("GET /futoin/{log}")
    assert (span.parent, span.attributes["http.response.status_code"]) == (PARENT_ID, 101)


def message(parent: str = "") -> Message:
    """A message whose sender names that span."""
    given = {"traceparent": parent} if parent else None
    return Message([b"1"], DATA, properties=Properties(subject="A"), application_properties=given)


def test_messages_that_are_appended_are_a_span_below_that_of_their_producer(world: World, collector: Collector) -> None:
    assert world.amqp.sender(LOG).send_all([message(PARENT)]) == [Accepted()]
    [span] = collector.named(f"append {LOG}")
    assert (span.kind, span.trace, span.parent, span.status) == (PRODUCER, TRACE_ID, PARENT_ID, OK)
    assert span.links == [f"{TRACE_ID}-{PARENT_ID}"]
    assert span.attributes["messaging.destination.name"] == LOG
    assert span.attributes["messaging.batch.message_count"] == 1
    assert dict(next(iter(world.log.read(after=world.log.head() - 1))).attributes) == {"traceparent": PARENT}


def test_messages_of_several_traces_are_linked_to_each(world: World, collector: Collector) -> None:
    parents = [PARENT, OTHER, "", PARENT]
    assert world.amqp.sender(LOG).send_all([message(parent) for parent in parents]) == [Accepted()] * 4

    def links() -> set[str]:
        return {link for span in collector.find(f"append {LOG}") for link in span.links}

    collector.named(f"append {LOG}")
    spans = collector.find(f"append {LOG}")
    assert sum(span.attributes["messaging.batch.message_count"] for span in spans) == 4
    assert links() == {"-".join(parent.split("-")[1:3]) for parent in (PARENT, OTHER)}


def test_a_webhook_is_called_in_a_span_below_that_of_the_events_producer(world: World, collector: Collector) -> None:
    case = next(case for case in CASES if case.name == "notification_traced")
    world.webhook.until(world.write(CneCloudEvent(), case))
    [span] = [each for each in collector.named("POST") if each.attributes.get("http.response.status_code")]
    assert (span.kind, span.trace, span.parent, span.status) == (CLIENT, TRACE_ID, PARENT_ID, OK)
    assert span.attributes == {
        "http.request.method": "POST",
        "http.response.status_code": 204,
        "url.full": world.webhook.url,
        "server.address": "127.0.0.1",
        "server.port": int(world.webhook.url.split(":")[2].partition("/")[0]),
    }
    head, body = world.webhook.heads[-1], json.loads(world.webhook.bodies[-1])
    assert head["traceparent"] == f"00-{TRACE_ID}-{span.id}-01"
    assert head["tracestate"].replace(" ", "") == TRACE["tracestate"].replace(" ", "")
    assert (body["traceparent"], body["tracestate"]) == (PARENT, TRACE["tracestate"])


def test_a_webhook_that_does_not_take_an_event_is_a_failed_span(world: World, collector: Collector) -> None:
    case = next(case for case in CASES if case.name == "notification_traced")
    world.webhook.is_up = False
    try:
        world.call("POST", f"{CNE}/create/event", *notification("failed", case))
        failed = collector.named("POST")[0]
    finally:
        world.webhook.is_up = True
    assert (failed.status, failed.trace) == (ERROR, TRACE_ID)
    assert failed.attributes["error.type"] and "http.response.status_code" not in failed.attributes


def notification(id: str, case: Case) -> tuple[bytes, dict[str, str]]:
    """The body and the header fields of one more notification."""
    members = json.loads(document(case, "cne_cloudevent")) | {"id": id}
    return json.dumps(members).encode(), {"content-type": "application/cloudevents+json"}


def test_what_was_not_exported_yet_is_when_the_server_stops(tmp_path: Path) -> None:
    with Collector() as collector:
        given = ["--tracing-endpoint", f"{collector.url}/v1/traces", "--log", LOG]
        with RunningServer(*given, cwd=tmp_path) as server:
            assert server.ask(APPEND, EVENTS)[0] == 200
            server.terminate()
        assert [span.name for span in collector.spans] == ["POST /logs/{log}/append"]


def test_a_collector_that_is_not_there_keeps_nobody_from_being_answered(tmp_path: Path) -> None:
    with Collector() as gone:
        url = gone.url
    with RunningServer("--tracing-endpoint", url, "--log", LOG, cwd=tmp_path, program=PROGRAM) as server:
        assert [server.ask(APPEND, EVENTS)[0] for _ in range(3)] == [200] * 3
        server.wait_for("logger=opentelemetry")
        server.terminate()
