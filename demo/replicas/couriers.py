"""Clients of several protocols that append, each in order, and go on where the primary is when it died.

A courier gives its events ids, and repeats what was not answered: an event is there once, however often it was sent.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from typing import ClassVar
from urllib.parse import urlsplit

from headwater.amqp.client import Client, Sender
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.message import DATA, Message
from headwater.amqp.protocol.performatives import Accepted
from headwater.client import Server, connect
from headwater.core import Event
from headwater.core.errors import EventLogError

from ..stage import LOG
from .machine import Machine

PATIENCE_S = 60.0
PAUSE_S = 0.02
ANSWER_S = 10.0
BATCH_EVENTS = 20
"""So many are sent by one call, where the protocol has such calls."""
_AWAY = (OSError, HTTPException, AmqpError, EventLogError)


class Refused(EventLogError):
    """A server answered, and did not take the events."""


class Courier(threading.Thread, ABC):
    """One client: it appends its events, remembers what it was told and when, and has patience with servers."""

    protocol: ClassVar[str]
    batch_events: ClassVar[int] = 1

    def __init__(self, machines: Sequence[Machine], events: Sequence[Event]) -> None:
        super().__init__(name=self.protocol, daemon=True)
        self.events = events
        self.told: dict[str, int | None] = {}
        """Of each event that was acknowledged: its number, None where the protocol does not say one."""
        self.answered: list[float] = []
        """When (by time.monotonic) an append was answered."""
        self.repeated = 0
        """How many appends were sent again."""
        self.error: Exception | None = None
        self._machines = machines
        self._ending = threading.Event()

    def run(self) -> None:
        """Append all of them."""
        try:
            for start in range(0, len(self.events), self.batch_events):
                if self._ending.is_set():
                    return
                batch = self.events[start : start + self.batch_events]
                self.told |= zip((event.id for event in batch), self._until_answered(batch), strict=True)
                self.answered.append(time.monotonic())
        except Exception as error:  # shown by the main thread
            self.error = error
        finally:
            self.leave()

    def end(self) -> None:
        """End it, wherever it is."""
        self._ending.set()
        if self.ident is not None:
            self.join()

    def _until_answered(self, batch: Sequence[Event]) -> Sequence[int | None]:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.append(batch)
            except _AWAY:
                if time.monotonic() > deadline or self._ending.wait(PAUSE_S):
                    raise
                self.repeated += 1
                self.leave()

    @abstractmethod
    def append(self, batch: Sequence[Event]) -> Sequence[int | None]:
        """Send them; answers their numbers. Raises what says that it is to be tried again, elsewhere perhaps."""

    @abstractmethod
    def leave(self) -> None:
        """Close the connection, if there is one."""


class Dcb(Courier):
    """Headwater's own client: it is given three addresses, and finds the primary by itself."""

    protocol = "DCB over HTTP"
    batch_events = BATCH_EVENTS
    _server: Server | None = None

    def append(self, batch: Sequence[Event]) -> Sequence[int | None]:
        """One append: all or none."""
        if self._server is None:
            self._server = connect([machine.url for machine in self._machines], timeout_s=ANSWER_S, retry_s=0)
        first = self._server.log(LOG).append(batch).first
        return range(first, first + len(batch))

    def leave(self) -> None:
        """Close it."""
        if self._server is not None:
            self._server.close()
            self._server = None


class _Posting(Courier):
    """A plain HTTP client: it goes where a server says that the primary is, and else to the next address."""

    _connection: HTTPConnection | None = None
    _url = ""

    def __init__(self, machines: Sequence[Machine], events: Sequence[Event]) -> None:
        super().__init__(machines, events)
        self._urls = itertools.cycle(machine.url for machine in machines)

    def post(self, path: str, content_type: str, body: object) -> bytes:
        """The body of the answer. Raises Refused for any but 200."""
        if self._connection is None:
            self._url = self._url or next(self._urls)
            self._connection = HTTPConnection(urlsplit(self._url).netloc, timeout=ANSWER_S)
        url, self._url = self._url, ""  # unless it answers, the next one is tried
        self._connection.request("POST", path, json.dumps(body).encode(), {"content-type": content_type})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status == 200:
            self._url = url
            return content
        self._url = answer.headers.get("headwater-primary") or ""
        raise Refused(f"{url} answers {answer.status}: {content.decode(errors='replace')[:200]}")

    def leave(self) -> None:
        """Close it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class CloudEvents(_Posting):
    """A structured CloudEvent in a POST each."""

    protocol = "CloudEvents over HTTP"

    def append(self, batch: Sequence[Event]) -> Sequence[int | None]:
        """One event."""
        [event] = batch
        context = {"specversion": "1.0", "id": event.id, "source": event.source, "type": event.type}
        body = {**context, **event.attributes, "tags": ",".join(event.tags), "data": json.loads(event.data)}
        answer = json.loads(self.post(f"/logs/{LOG}/events", "application/cloudevents+json", body))
        return [answer["sequence_number"]]


class FutoIn(_Posting):
    """addEvent with a key."""

    protocol = "FutoIn over HTTP"

    def append(self, batch: Sequence[Event]) -> Sequence[int | None]:
        """One event."""
        [event] = batch
        given = {"type": "WEATHER", "data": json.loads(event.data), "key": event.id}
        call = {"f": "headwater.evt.gen:1.0:addEvent", "p": given, "sec": "weather:none"}
        answer = json.loads(self.post(f"/futoin/{LOG}", "application/futoin+json", call))
        if "r" not in answer:
            raise Refused(f"{answer.get('e')}: {answer.get('edesc')}")
        return [int(answer["r"])]


class Amqp(Courier):
    """A producer over AMQP: only the primary speaks it, so it goes where a load balancer would have led it."""

    protocol = "AMQP"
    batch_events = BATCH_EVENTS
    _client: Client | None = None
    _sender: Sender | None = None

    def append(self, batch: Sequence[Event]) -> Sequence[int | None]:
        """A message each, all on their way at once."""
        if self._sender is None:
            primary = next((machine for machine in self._machines if machine.is_ready("primary")), None)
            if primary is None:
                raise Refused("no server is the primary")
            self._client = Client(primary.amqp_url, timeout_s=ANSWER_S)
            self._sender = self._client.sender(LOG)
        states = self._sender.send_all(list(map(_message, batch)))
        if refused := [state for state in states if state != Accepted()]:
            raise Refused(f"{len(refused)} of {len(batch)} messages were not accepted: {refused[0]}")
        return [None] * len(batch)

    def leave(self) -> None:
        """Drop it: what it was told is settled."""
        self._sender = None
        if self._client is not None:
            self._client.drop()
            self._client = None


COURIERS: dict[str, type[Courier]] = {"EWR": Dcb, "JFK": Amqp, "LGA": CloudEvents}
"""By airport of origin; the weather stations speak FutoIn."""


def couriers_for(machines: Sequence[Machine], events: Sequence[Event]) -> list[Courier]:
    """A courier for each airport, and one for the weather, with their events in order."""
    flights: dict[str, list[Event]] = {origin: [] for origin in COURIERS}
    weather: list[Event] = []
    for event in events:
        origin = next(tag.removeprefix("origin:") for tag in event.tags if tag.startswith("origin:"))
        (flights[origin] if event.type.startswith("Flight") else weather).append(event)
    return [*(COURIERS[origin](machines, theirs) for origin, theirs in flights.items()), FutoIn(machines, weather)]


def _message(event: Event) -> Message:
    """An event as a CloudEvent in an AMQP message (CloudEvents AMQP binding, binary mode)."""
    properties = {"specversion": "1.0", "id": event.id, "source": event.source, "type": event.type}
    properties |= {**event.attributes, "tags": ",".join(event.tags)}
    named = {f"cloudEvents:{name}": value for name, value in properties.items() if name != "datacontenttype"}
    return Message([event.data], DATA, application_properties=named)
