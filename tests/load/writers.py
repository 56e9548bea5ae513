"""Writers, by protocol."""

from __future__ import annotations

import json

import pyarrow as pa

from headwater.amqp.protocol.message import DATA, Message
from headwater.amqp.protocol.performatives import Accepted
from headwater.core.condition import AppendCondition
from headwater.core.event import Event
from headwater.core.query import Query

from .clients import TRIMMED, Writer
from .place import RESOURCE, TIMEOUT_S, ask

STAGED_WRITER = "soak"


class Dcb(Writer):
    """Appends over HTTP."""

    name = "dcb"

    def _live(self) -> None:
        with self.place.client() as self._server:
            super()._live()

    def _append(self, marker: str) -> bool:
        event = Event("Good", self.payload(marker), (), marker, "good")
        self.told[marker] = self._server.log(self.log).append([event]).first
        return True


class Decider(Dcb):
    """Each append has the condition that nobody decided since its last one; repeated, it is recognised all the same."""

    def _append(self, marker: str) -> bool:
        event = Event("Good", self.payload(marker), (f"decider:{self.name}",), marker, "good")
        newest = self.told[next(reversed(self.told))] if self.told else 0
        condition = AppendCondition(Query.where(tags=event.tags), newest)
        self.told[marker] = self._server.log(self.log).append([event], condition).first
        return True


class CloudEvents(Writer):
    """A POST of a structured CloudEvent each."""

    name = "cloudevents"

    def _append(self, marker: str) -> bool:
        event = {"specversion": "1.0", "id": marker, "source": "/good", "type": "good", "data": self.text(marker)}
        ask(self.place, "POST", f"/logs/{self.log}/events", event, "application/cloudevents+json")
        return True


class AmqpOne(Writer):
    """One message after the other."""

    name = "amqp"
    refusals: tuple[str, ...] = ("amqp:resource-limit-exceeded", "amqp:link:detach-forced")
    """After which it sends again."""

    def _live(self) -> None:
        with self.place.amqp_client() as client:
            self._sender = client.sender(self.log)
            super()._live()

    def _append_all(self, markers: list[str]) -> bool:
        states = self._sender.send_all([self._message(marker) for marker in markers])
        refused = [state for state in states if state != Accepted()]
        assert all(state.error.condition in self.refusals for state in refused), refused
        return not refused

    def _message(self, marker: str) -> Message:
        context = {"specversion": "1.0", "id": marker, "source": "good", "type": "Good"}
        properties = {f"cloudEvents:{name}": value for name, value in context.items()}
        return Message([self.payload(marker)], DATA, application_properties=properties)


class AmqpMany(AmqpOne):
    """Many messages at once."""

    name = "amqp_many"
    together = 20


class Futoin(Writer):
    """addEvent with keys."""

    name = "futoin"

    def _live(self) -> None:
        with self.place.websocket(self.log) as connection:
            self._connection = connection
            super()._live()

    def _append(self, marker: str) -> bool:
        given = {"type": "GOOD", "data": self.text(marker), "key": marker}
        message = {"f": "headwater.evt.gen:1.0:addEvent", "p": given, "rid": "C1"}
        self._connection.send(json.dumps(message).encode())
        reply = json.loads(self._connection.recv(timeout=TIMEOUT_S))
        if "r" not in reply:
            assert reply["e"] == "DefenseRejected" or "stopping" in reply["edesc"], reply
            return False
        self.told[marker] = int(reply["r"])
        return True


class Cne(Writer):
    """A node that tells about a resource."""

    name = "cne"

    def _append(self, marker: str) -> bool:
        value = {"ResourceAddress": RESOURCE, "data_type": "notification", "value_type": "enumeration"}
        event = {
            "specversion": "1.0",
            "id": marker,
            "type": "good",
            "source": RESOURCE,
            "time": "2026-01-01T00:00:00Z",
            "data": {"version": "1.0", "values": [{**value, "value": self.text(marker)}]},
        }
        ask(self.place, "POST", "/ocloudNotifications/v2/create/event", event, "application/cloudevents+json")
        return True


class Flight(Writer):
    """do_put, where what is stored already is skipped."""

    name = "flight"

    def _live(self) -> None:
        with self.place.bulk_client() as client:
            self._client = client
            super()._live()

    def _append(self, marker: str) -> bool:
        columns = {
            "type": pa.array(["Good"]),
            "data": pa.array([self.payload(marker)], pa.binary()),
            "id": pa.array([marker]),
            "source": pa.array(["flight"]),
        }
        [appended] = self._client.append(self.log, [pa.record_batch(columns)], on_duplicate="skip")
        if appended.first:
            self.told[marker] = appended.first
        return True


class Staged(Flight):
    """Batches of two stages, committed exactly once by writer and batch: the events have no ids."""

    name = "staged"
    together = 20

    def _append_all(self, markers: list[str]) -> bool:
        batch, half = int(markers[0].rpartition(":")[2]) // self.together, self.together // 2
        stages = []
        for part, rows in enumerate((markers[:half], markers[half:])):
            columns = {
                "type": pa.array(["Good"] * half),
                "data": pa.array([self.payload(marker) for marker in rows], pa.binary()),
            }
            staged = self._client.stage(self.log, STAGED_WRITER, batch, part, self.losses, [pa.record_batch(columns)])
            stages.append(staged.stage)
        committed = self._client.commit(self.log, STAGED_WRITER, batch, stages)
        self.told |= {markers[0]: committed.first, markers[-1]: committed.last}
        return True


class Filler(Dcb):
    """Large events for the log that forgets."""

    name = "filler"
    log = TRIMMED


WRITERS: tuple[type[Writer], ...] = (Decider, CloudEvents, AmqpOne, AmqpMany, Futoin, Cne, Flight, Staged)
ONE_EACH: tuple[type[Writer], ...] = (Dcb, AmqpOne, Futoin, Cne, Flight)
"""One of each protocol."""
