"""A corpus of odd events: every way in gives the same verdict, and what is taken is read by every way out."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import pyarrow as pa
import pytest

from headwater.amqp.client import Client
from headwater.amqp.protocol.performatives import Accepted, Rejected
from headwater.amqp.protocol.types import Symbol
from headwater.client import connect
from headwater.core import Event, LogSettings
from headwater.core.errors import InvalidInput
from headwater.core.limits import check_append
from headwater.flight.client import BulkClient
from headwater.flight.wire import Ticket
from headwater.formats.embedding import is_embeddable
from headwater.formats.envelope import ndjson_events
from headwater.storage.memory import MemoryLog
from tests.amqp.asking import EARLIEST
from tests.amqp.streams.messages import cloud_event, properties
from tests.amqp.streams.messages import data as data_section

from .corpus import generate
from .corpus.entries import CE, ENTRIES, TAKEN, Entry, extensions, is_message, members, rows
from .running import RunningServer

CNE = "/api/ocloudNotifications/v2"


class Doors:
    """Every way in; each answers what refused the events, or None, and whether it can say one at all."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.amqp_url = server.further_url("amqp")
        self.flight = BulkClient(server.further_url("grpc"))
        self.amqp = Client(self.amqp_url)
        self.sender = self.amqp.sender("odd")
        self._batches = 0
        asked = json.dumps({"ResourceAddress": "/odd"}).encode()
        self.publisher = json.loads(server.ask(f"{CNE}/publishers", asked)[1])["SubscriptionId"]

    def close(self) -> None:
        self.flight.close()
        self.amqp.close()

    def in_process(self, *given: Entry) -> str | None:
        return _fault(lambda: MemoryLog(LogSettings()).append([each.event for each in given]))

    def imported(self, *given: Entry) -> str | None:
        lines = [json.dumps(each.given).encode() for each in given]
        return _fault(lambda: MemoryLog(LogSettings()).append(list(ndjson_events(lines))))

    def json(self, *given: Entry) -> str | None:
        return self._post("append", {"events": [each.given for each in given]}, "application/json")

    def message_pack(self, *given: Entry) -> str | None:
        rows = [
            [*each.event[:5], dict(each.event.attributes), *each.event[6:8], int(each.event.encoding)] for each in given
        ]
        return self._post("append", msgspec.msgpack.encode({"events": rows}), "application/vnd.msgpack")

    def arrow(self, *given: Entry) -> str | None:
        batch, sink = rows(given), io.BytesIO()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        return self._post("append", sink.getvalue(), "application/vnd.apache.arrow.stream")

    def flight_append(self, *given: Entry) -> str | None:
        return _fault(lambda: self.flight.append("odd", rows(given)))

    def staged(self, *given: Entry) -> str | None:
        self._batches += 1

        def stage() -> None:
            part = self.flight.stage("odd", "w", self._batches, 0, 1, rows(given))
            self.flight.commit("odd", "w", self._batches, [part.stage])

        return _fault(stage)

    def cloudevent(self, *given: Entry) -> str | None:
        faults = [self._post("events", members(each), "application/cloudevents+json") for each in given]
        return next(filter(None, faults), None)

    def cloudevent_batch(self, *given: Entry) -> str | None:
        return self._post("events", [members(each) for each in given], "application/cloudevents-batch+json")

    def cloudevent_in_headers(self, *given: Entry) -> str | None:
        faults = [self._post("events", each.event.data, **_headers(each.event)) for each in given]
        return next(filter(None, faults), None)

    def futoin(self, *given: Entry) -> str | None:
        for each in given:
            call = b'{"f":"futoin.evt.gen:1.0:addEvent","sec":"anybody:secret","p":{"type":"ODD","data":%b}}'
            answer = json.loads(self.server.ask("/futoin/odd", call % each.event.data)[1])
            if "r" not in answer:
                return str(answer)
        return None

    def cne(self, *given: Entry) -> str | None:
        published = {"id": self.publisher, "type": "event.odd", "source": "/odd"}
        value = {"ResourceAddress": "/odd", "data_type": "notification", "value_type": "enumeration", "value": "x"}
        for each in given:
            body = published | {"time": each.event.attributes["time"], "data": {"version": "1.0", "values": [value]}}
            status, text = self.server.ask(f"{CNE}/create/event", json.dumps(body).encode())
            assert status in (202, 400), text
            if status == 400:
                return text
        return None

    def transferred(self, *given: Entry) -> str | None:
        tags = []
        for each in given:
            tag = next(self.sender._tags)
            self.amqp.wait(lambda: self.sender.link.sendable > 0)
            self.sender.link.send(_message(each), tag, tag)
            tags.append(tag)
        self.amqp.wait(lambda: self.sender.states.keys() >= set(tags))
        outcomes = [self.sender.states.pop(tag) for tag in tags]
        refused = [each for each in outcomes if isinstance(each, Rejected)]
        assert refused or outcomes == [Accepted()] * len(given)
        return str(refused[0].error) if refused else None

    def _post(self, path: str, body: Any, media_type: str, **headers: str) -> str | None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, text = self.server.ask(f"/logs/odd/{path}", content, {"content-type": media_type, **headers})
        assert status in (200, 400), text
        return text if status == 400 else None


def _fault(do: Callable[[], object]) -> str | None:
    try:
        do()
    except InvalidInput as error:
        return str(error)
    return None


def _headers(event: Event) -> dict[str, str]:
    """The event as header fields (HTTP binding, 3.1): each value percent-encoded, but that of `content-type`."""
    attributes = dict(event.attributes)
    named = CE | {"id": event.id, "source": event.source, "type": event.type} | extensions(event)
    media_type = attributes.pop("datacontenttype", "application/json")
    encoded = {f"ce-{name}": quote(value, safe="") for name, value in (attributes | named).items()}
    return {"media_type": media_type} | encoded


def _message(entry: Entry) -> bytes:
    """The event as a message: itself where it is one, else a CloudEvent in binary mode."""
    event = entry.event
    if event.envelope or event.encoding:
        return event.envelope + event.data
    attributes = dict(event.attributes)
    content_type = attributes.pop("datacontenttype", None)
    before = properties(content_type=Symbol(content_type)) if content_type is not None else b""
    named = {"id": event.id, "source": event.source, "type": event.type} | attributes | extensions(event)
    return before + cloud_event(**named) + data_section(event.data)


def _is_other_over_amqp(entry: Entry) -> bool:
    """Whether AMQP's form says something else: what is stripped from a message, and an attribute that is a field."""
    is_stripped = entry.name.startswith(("message that is not stored", "envelope of", "message: no section"))
    is_content_type = entry.name == "datacontenttype that is empty"
    return is_stripped or is_content_type or entry.name in (
        "attribute called source", "attribute called specversion", "attribute called ",
    )  # fmt: skip


def _is_other_over_cne(entry: Entry) -> bool:
    """Whether a notification may have that time, and is stored with another: no time, and StarlingX's."""
    time = entry.event.attributes["time"]
    return not entry.is_taken and (not time or time.endswith("896244Z"))


def _can_say(door: str, entry: Entry) -> bool:
    event = entry.event
    if door == "futoin":
        return entry.name.startswith("payload ") and is_embeddable(event.data)
    if door == "cne":
        return entry.name.startswith("time ") and not _is_other_over_cne(entry)
    if door == "cloudevent_in_headers" and {"Upper", ""} & set(event.attributes):
        return False
    if door.startswith("cloudevent"):
        fields = {"source", "specversion"} & set(event.attributes)
        return not is_message(entry) and not fields and event.tags != ("",)
    if door == "transferred":
        return not _is_other_over_amqp(entry) and event.tags != ("",)
    return True


DOORS = ["in_process", "imported", "json", "message_pack", "arrow", "flight_append", "staged", "cloudevent",
         "cloudevent_batch", "cloudevent_in_headers", "futoin", "cne", "transferred"]  # fmt: skip


AT_LEAST = {"futoin": 4, "cne": 10}


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    directory = tmp_path_factory.mktemp("corpus")
    flight = ("--flight-enabled", "true", "--flight-port", "0", "--flight-start", "at_once")
    with RunningServer("--data", "data", "--log", "odd", *flight, cwd=directory) as server:
        found = Doors(server)
        yield found
        found.close()


def test_the_corpus_is_what_its_script_writes() -> None:
    assert generate.FILE.read_text() == "".join(generate.lines())
    assert len(ENTRIES) > 200


@pytest.mark.parametrize("door", DOORS)
def test_every_way_in_refuses_the_same(doors: Doors, door: str) -> None:
    head = _head(doors)
    said = [entry for entry in ENTRIES if not entry.is_taken and _can_say(door, entry)]
    taken = [entry.name for entry in said if getattr(doors, door)(entry) is None]
    assert taken == []
    assert _head(doors) == head


@pytest.mark.parametrize("door", DOORS)
def test_every_way_in_takes_the_same(doors: Doors, door: str) -> None:
    said = [entry for entry in TAKEN if _can_say(door, entry)]
    given = [entry._replace(event=entry.event._replace(id=f"{door} {entry.event.id}"[:512])) for entry in said]
    given = [entry._replace(given=entry.given | {"id": entry.event.id}) for entry in given]
    fault = getattr(doors, door)(*given)
    if fault is not None:
        assert [(each.name, why) for each in given if (why := getattr(doors, door)(each)) is not None] == [], fault
    assert check_append([each.event for each in given], LogSettings().event_bytes_max).count == len(given)
    assert len(given) > AT_LEAST.get(door, 90)


def _head(doors: Doors) -> int:
    return int(json.loads(doors.server.ask("/logs/odd")[1])["head"])


@pytest.mark.parametrize("accept", [
    "application/json", "application/x-ndjson", "application/cloudevents-batch+json",
    "application/vnd.apache.arrow.stream", "application/cloudevents+json",
])  # fmt: skip
def test_what_was_taken_is_read_in_every_form_of_http(doors: Doors, accept: str) -> None:
    head = _filled(doors)
    body = json.dumps({"query": "all", "limit": head}).encode()
    headers = {"content-type": "application/json", "accept": accept}
    with doors.server.open("/logs/odd/read", body, headers) as answer:
        content = answer.read()
    if accept == "application/x-ndjson":
        count = len([json.loads(line) for line in content.splitlines()])
    elif accept.endswith("stream"):
        count = pa.ipc.open_stream(content).read_all().num_rows
    else:
        found = json.loads(content)
        count = len(found["events"] if isinstance(found, dict) else found)
    assert count == head


def test_our_client_over_http_reads_what_was_taken(doors: Doors) -> None:
    head = _filled(doors)
    with connect(doors.server.url) as client:
        found = [event.event for event in client.log("odd").read()]
    assert len(found) == head
    assert check_append(found, LogSettings().event_bytes_max).count == head


def test_our_own_client_of_amqp_reads_what_was_taken(doors: Doors) -> None:
    head = _filled(doors)
    with Client(doors.amqp_url) as client:
        found = client.receiver("odd", filter=EARLIEST, credit=head).take(head)
        assert len(found) == head


def test_futoin_polls_what_was_taken(doors: Doors) -> None:
    head, last = _filled(doors), 0
    while last < head:
        asked = {"component": "LIVE", "last_id": str(last) if last else None, "want": None}
        call = {"f": "futoin.evt.poll:1.0:pollEvents", "sec": "anybody:secret", "p": asked}
        answer = json.loads(doors.server.ask("/futoin/odd", json.dumps(call).encode())[1])
        assert "r" in answer, answer
        assert [int(event["id"]) for event in answer["r"]] == list(range(last + 1, last + 1 + len(answer["r"])))
        assert answer["r"]
        last += len(answer["r"])
    assert last == head


@pytest.mark.parametrize("form", ["envelope", "data", "cloudevent", "amqp", "amqp_bytes", "futoin"])
def test_the_console_shows_what_was_taken(doors: Doors, form: str) -> None:
    head = min(_filled(doors), len(TAKEN))
    with closing(HTTPConnection(urlsplit(doors.server.url).netloc)) as connection:
        for number in range(1, head + 1):
            connection.request("GET", f"/logs/odd/events/{number}?form={form}")
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == 200, (number, content)
            if answer.headers["content-type"] != "application/octet-stream":
                json.loads(content)


def test_flight_reads_what_was_taken(doors: Doors) -> None:
    head = _filled(doors)
    assert sum(batch.num_rows for batch in doors.flight.read(Ticket("odd"))) == head


def _filled(doors: Doors) -> int:
    """The head of the log, in which all that is taken is."""
    if not _head(doors):
        assert doors.json(*TAKEN) is None
    return _head(doors)
