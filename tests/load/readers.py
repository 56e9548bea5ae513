"""Readers, by protocol."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from typing import Any, ClassVar

from headwater.flight.client import Ticket
from tests.amqp.asking import EARLIEST, OFFSET, after, annotation, bound
from tests.matrix.world import Webhook as Hook

from .clients import TRIMMED, Reader
from .place import LOG, RESOURCE, TIMEOUT_S, Place, ask, call, push_calls


class Subscription(Reader):
    """Server-Sent Events; the client connects anew by itself."""

    name = "dcb"
    connects = Place.client

    def _work(self) -> None:
        with self.connection.log(self.log).subscribe(after=self.after) as subscription:
            while not self._ending.is_set():
                for event in subscription.poll(0.2):
                    subscription.cursor = max(subscription.cursor, event.sequence_number)
                    self.note(event.sequence_number, event.data)


class Polling(Reader):
    """Reads after what it has, again and again."""

    def _work(self) -> None:
        while not self._ending.wait(0.1):
            for number, data in self._read():
                self.note(number, data)

    @abstractmethod
    def _read(self) -> Iterable[tuple[int, bytes]]:
        """What comes after that, for now."""


class DcbRead(Polling):
    name = "dcb_read"
    connects = partial(Place.client, retry_s=0)

    def _read(self) -> Iterable[tuple[int, bytes]]:
        return ((its.sequence_number, its.data) for its in self.connection.log(self.log).read(after=self.after))


class FlightFollow(Polling):
    name = "flight"
    connects = Place.bulk_client

    def _read(self) -> Iterable[tuple[int, bytes]]:
        batches = self.connection.read(Ticket(self.log, after=self.after, columns=("sequence_number", "data")))
        return ((row["sequence_number"], row["data"]) for batch in batches for row in batch.to_pylist())


class FutoinPoll(Polling):
    """A reliable consumer that asks for events over HTTP: what it has is acknowledged by asking for more."""

    name = "futoin_poll"

    def _work(self) -> None:
        self._call("registerConsumer", component="Polling")
        super()._work()

    def _read(self) -> Iterable[tuple[int, bytes]]:
        while events := self._call("pollEvents", component="Polling", last_id=str(self.after or "") or None):
            yield from ((int(event["id"]), json.dumps(event).encode()) for event in events)

    def _call(self, function: str, **given: Any) -> Any:
        asked = call(f"futoin.evt.poll:1.1:{function}", **given)
        reply = json.loads(ask(self.place, "POST", f"/futoin/{self.log}", asked))
        if "stopping" in reply.get("edesc", ""):
            raise ConnectionError(reply["edesc"])
        assert "r" in reply, reply
        return reply["r"]


class Amqp(Reader):
    """A receiver that resumes from its offset."""

    name = "amqp"
    connects = Place.amqp_client

    def _receiver(self) -> Any:
        return self.connection.receiver(self.log, filter=after(self.after) if self.after else EARLIEST)

    def _work(self) -> None:
        receiver = self._receiver()
        while not self._ending.is_set():
            for delivery in receiver.take(1, 0.2):
                self.note(int(annotation(delivery, OFFSET)), b"".join(delivery.message.body))
                delivery.settle()


class AmqpGroup(Amqp):
    """The one receiver of a consumer group, which goes on where the group was: the server remembers that."""

    name = "amqp_group"
    may_repeat = True
    group = "soak"
    options: ClassVar[dict[str, Any]] = {}

    def _receiver(self) -> Any:
        filter, properties = None if self.after else EARLIEST, bound(group=self.group)
        return self.connection.receiver(self.log, filter=filter, properties=properties, **self.options)


class FutoinPush(Reader):
    """A reliable consumer: a group that it did not acknowledge comes again, under the same number."""

    name = "futoin"
    connects = partial(Place.websocket, log=LOG, max_size=None)
    component: ClassVar[str] = "Good"
    may_repeat = True
    refuses = 0.005
    """The part of the groups that it does not acknowledge."""
    acknowledged = 0
    """Nothing above this was ever acknowledged."""

    def _work(self) -> None:
        for message in push_calls(self.component):
            self.connection.send(message)
            reply = json.loads(self.connection.recv(timeout=TIMEOUT_S))
            if reply.get("r") is not True and "stopping" in reply.get("edesc", ""):
                raise ConnectionError(reply["edesc"])
            assert reply.get("r") is True, reply
        due = 0
        while not self._ending.is_set():
            due += self._take(due)

    def _take(self, due: int) -> bool:
        """Whether a group came and was acknowledged; it must have the number that is due."""
        try:
            message = json.loads(self.connection.recv(timeout=0.2))
        except TimeoutError:
            return False
        assert message["p"]["seq"] == due, f"group {message['p']['seq']} came where {due} was due"
        for event in message["p"]["events"]:
            self.note(int(event["id"]), json.dumps(event).encode())
        if is_taken := self.chance.random() >= self.refuses:
            self.acknowledged = self.after
        reply = {"r": True} if is_taken else {"e": "Refused"}
        self.connection.send(json.dumps({**reply, "rid": message["rid"]}).encode())
        return is_taken


class FutoinAgain(FutoinPush):
    """Another consumer, which begins at the first event and acknowledges all."""

    component = "Again"
    refuses = 0.0


class FutoinStrict(FutoinAgain):
    """One that never loses its connection, so that nothing may come again."""

    component = "Strict"
    may_repeat = False


class FutoinTrimmed(FutoinPush):
    """Holds back what may be trimmed: it lets some groups come again."""

    name = "futoin_trimmed"
    log = TRIMMED
    connects = partial(Place.websocket, log=TRIMMED, max_size=None)
    component = "Holding"
    refuses = 0.03


class Webhook(Reader):
    """Gets what happens to one resource, each event at least once."""

    name = "cne"
    writers = frozenset({"cne"})
    may_repeat = True

    def _work(self) -> None:
        with closing(Hook()) as hook:
            ask(self.place, "POST", "/ocloudNotifications/v1/publishers", {"resource": RESOURCE})
            registration = {"ResourceAddress": RESOURCE, "EndpointUri": hook.url}
            ask(self.place, "POST", "/ocloudNotifications/v2/subscriptions", registration)
            self.is_ready.set()
            while not self._ending.is_set():
                for body in hook.take(0.2):
                    self.note(int(json.loads(body)["sequence"]), body)


READERS = (Amqp, AmqpGroup, DcbRead, Subscription, FutoinPush, FutoinPoll, Webhook, FlightFollow)
READERS_AGAIN = (Amqp, DcbRead, Subscription, FutoinAgain, FlightFollow)
"""Who read everything once more in the end. Webhooks get nothing twice; for them there is the current state."""
ONE_EACH = (Subscription, Amqp, FutoinStrict, Webhook, FlightFollow)
"""One of each protocol, in the order of the writers."""
