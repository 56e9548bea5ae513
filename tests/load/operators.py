"""Who manages the server while it is killed: logs made, changed and deleted, notifications heard, a log trimmed."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any, ClassVar

from .clients import TRIMMED, Client
from .place import Place
from .readers import FutoinTrimmed
from .visits import VISITS
from .writers import Filler

LOG_TYPE = "io.headwater.log"
STOPPING = 503
NAMES = 5
"""So many logs come and go."""


class Manager(Client):
    """Makes, changes and deletes logs over `$management`: what was answered holds, whatever was killed since."""

    name = "manager"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.answers: Counter[str] = Counter()
        self._retentions: dict[str, Any] = {}
        """By log that was made: its retention in ms."""
        self._unsure: set[str] = set()
        """Logs whose last change was not answered."""

    def _live(self) -> None:
        with self.place.amqp_client() as client:
            for turn in itertools.count(sum(self.answers.values())):
                if self._ending.wait(0.05):
                    return
                self._go_on(client, f"passing-{turn % NAMES}", 60_000 + turn)

    def _go_on(self, client: Any, log: str, retention_ms: int) -> None:
        read = self._ask(client, "READ", log)
        if log in self._unsure:
            self._unsure.discard(log)
            assert read.status in (200, 404), read
            self._retentions.pop(log, None)
            if read.status == 200:
                self._retentions[log] = read.body["retentionMs"]
        if log not in self._retentions:
            assert read.status == 404, f"{log} is deleted, and there: {read}"
            self._change(client, "CREATE", 201, log, {"retentionMs": retention_ms}, retention_ms)
            return
        assert read.status == 200, f"{log} is made, and not there: {read}"
        assert self._retentions[log] == read.body["retentionMs"], f"{log} forgot a change: {read}"
        if retention_ms % 3:
            self._change(client, "UPDATE", 200, log, {"retentionMs": retention_ms}, retention_ms)
        else:
            self._change(client, "DELETE", 204, log, None, None)

    def _change(self, client: Any, operation: str, status: int, log: str, body: Any, retention_ms: int | None) -> None:
        """Until it is answered, nobody knows whether it was done."""
        self._unsure.add(log)
        answer = self._ask(client, operation, log, body)
        assert answer.status == status, answer
        self._unsure.discard(log)
        self._retentions.pop(log, None)
        if retention_ms is not None:
            self._retentions[log] = retention_ms

    def _ask(self, client: Any, operation: str, log: str, body: Any = None) -> Any:
        answer = client.manage(operation, body, type=LOG_TYPE, name=log)
        if answer.status == STOPPING:
            raise ConnectionError(answer.description)
        self.answers[operation] += 1
        return answer


class Listener(Client):
    """Hears from `$events` what becomes of the logs that come and go: while it listens, nothing is left out."""

    name = "listener"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.heard: Counter[str] = Counter()
        self.lost = 0

    def _live(self) -> None:
        there: dict[str, bool] = {}
        with self.place.amqp_client() as client:
            receiver = client.receiver("$events")
            while not self._ending.is_set():
                for delivery in receiver.take(1, 0.2):
                    attributes = delivery.message.application_properties or {}
                    assert attributes["eventType"] == delivery.message.properties.subject, delivery.message
                    if attributes.get("lost"):
                        self.lost += attributes["lost"]
                        there.clear()
                    self._hear(attributes, there)

    def _hear(self, attributes: Any, there: dict[str, bool]) -> None:
        kind = attributes["eventType"].removeprefix("io.headwater.")
        self.heard[kind] += 1
        if kind in ("log.created", "log.deleted"):
            is_made = kind == "log.created"
            known = there.get(attributes["log"])
            assert known is not is_made, f"{kind} twice of {attributes['log']}, and nothing between"
            there[attributes["log"]] = is_made


class Trimmer(Client):
    """Looks at a log whose consumer holds it back: nothing goes that this one has not acknowledged.

    While the server lives for long, its retention trims. It looks every ten seconds, so that this asks for all to be
    trimmed where the server does not live as long; but for what the log's writer may send again: ids are known as long
    as their events are there.
    """

    name = "trimmer"
    log: ClassVar[str] = TRIMMED

    def __init__(self, place: Place, writer: Filler, consumer: FutoinTrimmed) -> None:
        super().__init__(place)
        self.writer, self.consumer = writer, consumer
        self.first_retained = 1
        self.trims = 0

    def _live(self) -> None:
        with self.place.client(retry_s=0) as server:
            log = server.log(self.log)
            while not self._ending.wait(0.2):
                self.check(log.info().first_retained)
                if self.losses and (told := list(self.writer.told.values())[-1:]):
                    self.check(log.trim(told[0] + 1))

    def check(self, first_retained: int) -> None:
        """Hold it against what was acknowledged and trimmed before. Raises AssertionError."""
        self.trims += first_retained > self.first_retained
        before = self.first_retained
        assert first_retained >= before, f"event {first_retained} had been trimmed, and is there again"
        self.first_retained = first_retained
        upto = self.consumer.acknowledged
        assert first_retained <= upto + 1, f"trimmed below {first_retained}, acknowledged is {upto}"


class Passer(Client):
    """Comes and goes, politely or not, by one protocol after the other."""

    name = "passer"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.visits: Counter[str] = Counter()

    def _live(self) -> None:
        for turn in itertools.count():
            for kind, visit in VISITS.items():
                if self._ending.is_set():
                    return
                visit(self.place, turn % 2 == 0)
                self.visits[kind] += 1
