"""Clients of each protocol that outlive the server: the neighbours of `tests.hostile`, which connect anew, and more."""

from __future__ import annotations

import json
import random
from http.client import HTTPException
from typing import Any, ClassVar
from urllib.error import HTTPError, URLError

import pyarrow as pa
from websockets.exceptions import WebSocketException

from headwater.amqp.client import Client, Receiver
from headwater.amqp.protocol.conditions import AmqpError
from headwater.client import connect
from headwater.core.condition import AppendCondition
from headwater.core.errors import Closed, OutcomeUnknown, StorageUnavailable
from headwater.core.event import Event
from headwater.core.query import Query
from headwater.flight.errors import Busy
from headwater.formats.clients.retry import ServerUnreachable
from tests.amqp.asking import EARLIEST, bound
from tests.hostile.neighbours import RESOURCE, TIMEOUT_S, Neighbour, Place, Reader, Writer, ask
from tests.hostile.readers import AmqpReader, CneReader, DcbReader, FlightReader, FutoinReader
from tests.hostile.writers import AmqpWriter, CneWriter, DcbWriter, FlightWriter, FutoinWriter

from .book import Book, Page

TRIMMED = "trimmed"
"""The log that forgets."""
TRIMMED_REPEATS = 256
"""Its events have 16 KiB, so that segments fill."""
STAGED_WRITER = "soak"
LOST = (OSError, WebSocketException, EOFError, HTTPException, ServerUnreachable, Closed, Busy, StorageUnavailable)
"""How a call ends whose server is killed or stops, or a connection to it."""
ENDED = ("amqp:connection:forced", "amqp:link:detach-forced")
"""What a server that stops says over AMQP."""
BUSY = 503


def is_lost(error: BaseException) -> bool:
    """Whether the server went away, and nothing worse: one that is there and does not answer is at fault."""
    if isinstance(error, HTTPError):
        with error:
            return error.code == BUSY
    if isinstance(error, OutcomeUnknown) and error.__cause__ is not None:
        error = error.__cause__  # how its last attempt ended
    if isinstance(error.reason if isinstance(error, URLError) else error, TimeoutError):
        return False
    return isinstance(error, LOST) or (isinstance(error, AmqpError) and error.condition in ENDED)


class Lasting(Neighbour):
    """One that connects anew whenever the server went away."""

    book: Book
    is_given_up = False
    """Whether it is to end even with something under way."""

    def is_lost(self, error: BaseException) -> bool:
        return is_lost(error)

    def _is_done(self) -> bool:
        return super()._is_done() or (self._ending.is_set() and self.is_given_up)


class LastingWriter(Lasting, Writer):
    """One whose payloads follow from their markers."""

    pause_s = 0.005

    def __init__(self, place: Place, book: Book) -> None:
        super().__init__(place)
        self.book = book

    def text(self, marker: str) -> str:
        return self.book.text(marker)


class LastingReader(Lasting, Reader):
    """One that writes down what it saw."""

    may_repeat: ClassVar[bool] = False

    def __init__(self, place: Place, book: Book, name: str = "") -> None:
        super().__init__(place)
        self.book = book
        self.page = Page(name or f"the {self.name} reader", may_repeat=self.may_repeat)

    def note(self, number: int, text: bytes) -> None:
        self.after = max(self.after, number)
        self.book.note(self.page, number, text)


# Writers


class Decider(LastingWriter, DcbWriter):
    """Each append has the condition that nobody decided since its last one; repeated, it is recognised all the same."""

    def _append(self, marker: str) -> bool:
        event = Event("Good", self.payload(marker), (f"decider:{self.name}",), marker, "good")
        newest = self.told[next(reversed(self.told))] if self.told else 0
        condition = AppendCondition(Query.where(tags=event.tags), newest)
        self.told[marker] = self._server.log(self.log).append([event], condition).first
        return True


class CloudEvents(LastingWriter):
    """A POST of a structured CloudEvent each."""

    name = "cloudevents"

    def _append(self, marker: str) -> bool:
        event = {"specversion": "1.0", "id": marker, "source": "/good", "type": "good", "data": self.text(marker)}
        ask(self.place, "POST", f"/logs/{self.log}/events", event, "application/cloudevents+json")
        return True


class AmqpOne(LastingWriter, AmqpWriter):
    """One message after the other."""


class AmqpMany(LastingWriter, AmqpWriter):
    """Many messages at once."""

    name = "amqp_many"
    together = 20


class Futoin(LastingWriter, FutoinWriter):
    """addEvent with keys."""


class Cne(LastingWriter, CneWriter):
    """A node."""


class Flight(LastingWriter, FlightWriter):
    """do_put, where what is stored already is skipped."""


class Staged(LastingWriter, FlightWriter):
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


class Filler(LastingWriter, DcbWriter):
    """Large events for the log that forgets."""

    name = "filler"
    log = TRIMMED


WRITERS: tuple[type[LastingWriter], ...] = (Decider, CloudEvents, AmqpOne, AmqpMany, Futoin, Cne, Flight, Staged)


# Readers


class Amqp(LastingReader, AmqpReader):
    """A receiver that resumes from its offset."""


class AmqpGroup(LastingReader, AmqpReader):
    """The one receiver of a consumer group, which goes on where the group was: the server remembers that."""

    name = "amqp_group"
    may_repeat = True

    def _receiver(self, client: Client) -> Receiver:
        return client.receiver(self.log, filter=None if self.after else EARLIEST, properties=bound(group="soak"))


class DcbRead(LastingReader):
    """Reads after what it has, again and again."""

    name = "dcb_read"

    def _live(self) -> None:
        place = self.place
        with connect(place.http, user=place.user, password=place.password, timeout_s=TIMEOUT_S, retry_s=0) as server:
            while not self._ending.wait(0.1):
                for event in server.log(self.log).read(after=self.after):
                    self.note(event.sequence_number, event.data)


class Subscription(LastingReader, DcbReader):
    """Server-Sent Events; the client connects anew by itself."""

    name = "subscription"


class FutoinPush(LastingReader, FutoinReader):
    """A reliable consumer that now and then refuses a group."""

    may_repeat = True
    refuses = 0.005

    def takes(self, number: int) -> bool:
        return random.random() >= self.refuses


class FutoinAgain(FutoinPush):
    """Another consumer, which begins at the first event."""

    component = "Again"
    refuses = 0.0


class FutoinPoll(LastingReader):
    """A reliable consumer that asks for events over HTTP: what it has is acknowledged by asking for more."""

    name = "futoin_poll"

    def _live(self) -> None:
        self._call("registerConsumer", {"component": "Polling"})
        while not self._ending.wait(0.1):
            while events := self._call(
                "pollEvents", {"component": "Polling", "last_id": str(self.after or "") or None}
            ):
                for event in events:
                    self.note(int(event["id"]), json.dumps(event).encode())

    def _call(self, function: str, parameters: object) -> Any:
        call = {"f": f"futoin.evt.poll:1.1:{function}", "p": parameters}
        reply = json.loads(ask(self.place, "POST", f"/futoin/{self.log}", call))
        if "stopping" in reply.get("edesc", ""):
            raise ConnectionError(reply["edesc"])
        return reply["r"]


class FutoinTrimmed(FutoinPush):
    """Holds back what may be trimmed: it lets some groups come again."""

    name = "futoin_trimmed"
    log = TRIMMED
    component = "Holding"
    refuses = 0.03

    def __init__(self, place: Place, book: Book) -> None:
        super().__init__(place, book)
        self.acknowledged = 0
        """Nothing above this was ever acknowledged."""

    def takes(self, number: int) -> bool:
        if is_taken := super().takes(number):
            self.acknowledged = number
        return is_taken


class Webhook(LastingReader, CneReader):
    """Gets what happens to one resource."""

    may_repeat = True


class FlightFollow(LastingReader, FlightReader):
    """Reads in bulk after what it has, again and again."""


READERS: tuple[type[LastingReader], ...] = (
    Amqp,
    AmqpGroup,
    DcbRead,
    Subscription,
    FutoinPush,
    FutoinPoll,
    Webhook,
    FlightFollow,
)
READERS_AGAIN: tuple[type[LastingReader], ...] = (Amqp, DcbRead, Subscription, FutoinAgain, FlightFollow)
"""Who read everything once more in the end. Webhooks get nothing twice; for them there is the current state."""


def current_state(place: Place) -> Any:
    """What the notification API says of the resource that nodes tell about."""
    return json.loads(ask(place, "GET", f"/ocloudNotifications/v2{RESOURCE}/CurrentState"))
