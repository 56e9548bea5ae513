"""Neighbours that append, one of each protocol."""

from __future__ import annotations

import json

import pyarrow as pa

from headwater.amqp.protocol.message import DATA, Message
from headwater.amqp.protocol.performatives import Accepted
from headwater.client import connect
from headwater.core.event import Event
from headwater.flight.client import BulkClient

from .neighbours import RESOURCE, TIMEOUT_S, Writer, ask


class DcbWriter(Writer):
    name = "dcb"

    def _live(self) -> None:
        place = self.place
        with connect(place.http, user=place.user, password=place.password, timeout_s=TIMEOUT_S) as self._server:
            super()._live()

    def _append(self, marker: str) -> bool:
        appended = self._server.log(self.log).append([Event("Good", self.payload(marker), (), marker, "good")])
        self.told[marker] = appended.first
        return True


class AmqpWriter(Writer):
    name = "amqp"

    def _live(self) -> None:
        with self.place.amqp_client(timeout_s=TIMEOUT_S) as client:
            self._sender = client.sender(self.log)
            super()._live()

    def _append_all(self, markers: list[str]) -> bool:
        states = self._sender.send_all([self._message(marker) for marker in markers])
        refused = [state for state in states if state != Accepted()]
        for state in refused:
            assert state.error.condition in ("amqp:resource-limit-exceeded", "amqp:link:detach-forced"), state
        return not refused

    def _message(self, marker: str) -> Message:
        context = {"specversion": "1.0", "id": marker, "source": "good", "type": "Good"}
        properties = {f"cloudEvents:{name}": value for name, value in context.items()}
        return Message([self.payload(marker)], DATA, application_properties=properties)


class FutoinWriter(Writer):
    name = "futoin"

    def _live(self) -> None:
        with self.place.websocket(self.log, open_timeout=TIMEOUT_S, ping_timeout=None) as connection:
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


class CneWriter(Writer):
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


class FlightWriter(Writer):
    name = "flight"

    def _live(self) -> None:
        place = self.place
        with BulkClient(place.flight, user=place.user, password=place.password, timeout_s=TIMEOUT_S) as client:
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


WRITERS: tuple[type[Writer], ...] = (DcbWriter, AmqpWriter, FutoinWriter, CneWriter, FlightWriter)
