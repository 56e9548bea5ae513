"""Writers, by protocol."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from typing import Any

import pyarrow as pa

from headwater.amqp.client import Sender
from headwater.amqp.protocol.message import DATA, Message
from headwater.amqp.protocol.performatives import Accepted
from headwater.core.condition import AppendCondition
from headwater.core.event import Event
from headwater.core.query import Query

from . import losses
from .clients import TRIMMED, Writer
from .place import LOG, RESOURCE, TIMEOUT_S, Place, ask, call

STAGED_WRITER = "soak"


class Dcb(Writer):
    name = "dcb"
    connects = Place.client
    tags: tuple[str, ...] = ()

    def _append(self, marker: str) -> object:
        event = Event("Good", self.payload(marker), self.tags, marker, "good")
        self.told[marker] = self.connection.log(self.log).append([event], self._condition()).first
        return True

    def _condition(self) -> AppendCondition | None:
        return None


class Decider(Dcb):
    """Each append has the condition that nobody decided since its last one; repeated, it is recognised all the same."""

    tags = ("decider:dcb",)

    def _condition(self) -> AppendCondition:
        newest = self.told[next(reversed(self.told))] if self.told else 0
        return AppendCondition(Query.where(tags=self.tags), newest)


class CloudEvents(Writer):
    """A POST of a structured CloudEvent each."""

    name = "cloudevents"
    path, source = f"/logs/{LOG}/events", "/good"

    def _append(self, marker: str) -> object:
        event = {"specversion": "1.0", "id": marker, "source": self.source, "type": "good"}
        content = self._content(self.text(marker))
        return ask(self.place, "POST", self.path, {**event, **content}, "application/cloudevents+json")

    def _content(self, text: str) -> dict[str, Any]:
        return {"data": text}


class Cne(CloudEvents):
    """A node that tells about a resource."""

    name = "cne"
    path, source = "/ocloudNotifications/v2/create/event", RESOURCE

    def _content(self, text: str) -> dict[str, Any]:
        value = {"ResourceAddress": RESOURCE, "data_type": "notification", "value_type": "enumeration", "value": text}
        return {"time": "2026-01-01T00:00:00Z", "data": {"version": "1.0", "values": [value]}}


class AmqpOne(Writer):
    """One message after the other."""

    name = "amqp"
    connects = Place.amqp_client
    refusals: tuple[str, ...] = ("amqp:resource-limit-exceeded", "amqp:link:detach-forced")
    """After which it sends again."""
    sender: Sender

    def _work(self) -> None:
        self.sender = self.connection.sender(self.log)
        super()._work()

    def _append_all(self, markers: list[str]) -> bool:
        states = self.sender.send_all([self._message(marker) for marker in markers])
        refused = [state for state in states if state != Accepted()]
        assert all(state.error.condition in self.refusals for state in refused), refused
        return not refused

    def _message(self, marker: str) -> Message:
        context = {"specversion": "1.0", "id": marker, "source": "good", "type": "Good"}
        properties = {f"cloudEvents:{name}": value for name, value in context.items()}
        return Message([self.payload(marker)], DATA, application_properties=properties)


class AmqpMany(AmqpOne):
    name = "amqp_many"
    together = 20


class Futoin(Writer):
    """addEvent with keys."""

    name = "futoin"
    connects = partial(Place.websocket, log=LOG)

    def _append(self, marker: str) -> object:
        given = {"type": "GOOD", "data": self.text(marker), "key": marker}
        self.connection.send(call("headwater.evt.gen:1.0:addEvent", **given))
        reply = json.loads(self.connection.recv(timeout=TIMEOUT_S))
        if "r" not in reply:
            assert reply["e"] == "DefenseRejected" or "stopping" in reply["edesc"], reply
            return False
        self.told[marker] = int(reply["r"])
        return True


class Flight(Writer):
    """do_put, where what is stored already is skipped."""

    name = "flight"
    connects = Place.bulk_client

    def _append(self, marker: str) -> object:
        rows = self._rows([marker], id=[marker], source=["flight"])
        [appended] = self.connection.append(self.log, [rows], on_duplicate="skip")
        if appended.first:
            self.told[marker] = appended.first
        return True

    def _rows(self, markers: list[str], **more: list[str]) -> pa.RecordBatch:
        data = pa.array([self.payload(marker) for marker in markers], pa.binary())
        return pa.record_batch({"type": ["Good"] * len(markers), "data": data, **more})


class Staged(Flight):
    """Batches of two stages, committed exactly once by writer and batch: the events have no ids."""

    name = "staged"
    together = 20

    def _append_all(self, markers: list[str]) -> bool:
        batch, half = int(markers[0].rpartition(":")[2]) // self.together, self.together // 2
        stages = [
            self.connection.stage(self.log, STAGED_WRITER, batch, part, self.losses, [self._rows(its)]).stage
            for part, its in enumerate((markers[:half], markers[half:]))
        ]
        committed = self.connection.commit(self.log, STAGED_WRITER, batch, stages)
        self.told |= {markers[0]: committed.first, markers[-1]: committed.last}
        return True


class Filler(Dcb):
    """Large events for the log that forgets."""

    name = "filler"
    log = TRIMMED


WRITERS: tuple[type[Writer], ...] = (Decider, CloudEvents, AmqpOne, AmqpMany, Futoin, Cne, Flight, Staged)
ONE_EACH: tuple[type[Writer], ...] = (Dcb, AmqpOne, Futoin, Cne, Flight)
"""One of each protocol."""


def bear_with_a_home(writers: Iterable[Writer]) -> None:
    """Have them send again what a server of a home did not take, or does not know whether it has."""
    for writer in writers:
        if isinstance(writer, AmqpOne):
            writer.refusals = (*writer.refusals, *losses.AWAY_CONDITIONS)
