"""Who is at the server while it is killed: logs made, changed and deleted, and a log trimmed."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from typing import Any

from .clients import TRIMMED, Client
from .place import Place
from .readers import FutoinTrimmed
from .writers import Filler

LOG_TYPE = "io.headwater.log"
STOPPING = 503
NAMES = 5
"""So many logs come and go."""


class Manager(Client):
    """Makes, changes and deletes logs over `$management`: what was answered holds, whatever was killed since."""

    name = "manager"
    connects = Place.amqp_client

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.answers: Counter[str] = Counter()
        self._retentions: dict[str, int | None] = {f"passing-{number}": None for number in range(NAMES)}
        """In ms, None where there is no such log; without those whose last change was not answered."""

    def _work(self) -> None:
        for turn in itertools.count(sum(self.answers.values())):
            if self._ending.wait(0.05):
                return
            self._go_on(f"passing-{turn % NAMES}", 60_000 + turn)

    def _go_on(self, log: str, retention_ms: int) -> None:
        read = self._ask("READ", log)
        assert read.status in (200, 404), read
        found = read.body["retentionMs"] if read.status == 200 else None
        known = self._retentions.pop(log, found)
        assert found == known, f"{log} has {found} ms, {known} ms was answered: {read}"
        operation, status, wanted = ("UPDATE", 200, retention_ms) if retention_ms % 3 else ("DELETE", 204, None)
        if found is None:
            operation, status, wanted = "CREATE", 201, retention_ms
        answer = self._ask(operation, log, wanted and {"retentionMs": wanted})
        assert answer.status == status, answer
        self._retentions[log] = wanted

    def _ask(self, operation: str, log: str, body: Any = None) -> Any:
        answer = self.connection.manage(operation, body, type=LOG_TYPE, name=log)
        if answer.status == STOPPING:
            raise ConnectionError(answer.description)
        self.answers[operation] += 1
        return answer


class Listener(Client):
    """Hears from `$events` what becomes of the logs that come and go: while it listens, nothing is left out."""

    name = "listener"
    connects = Place.amqp_client

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.heard: Counter[str] = Counter()
        self.lost = 0

    def _work(self) -> None:
        there: dict[str, bool] = {}
        receiver = self.connection.receiver("$events")
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
            log, is_made = attributes["log"], kind == "log.created"
            assert there.get(log) is not is_made, f"{kind} twice of {log}, and nothing between"
            there[log] = is_made


class Trimmer(Client):
    """Looks at a log whose consumer holds it back: nothing goes that this one has not acknowledged.

    While the server lives for long, its retention trims. It looks every ten seconds, so that this asks for all to be
    trimmed where the server does not live as long; but for what the log's writer may send again: ids are known as long
    as their events are there.
    """

    name = "trimmer"
    log = TRIMMED
    connects = partial(Place.client, retry_s=0)

    def __init__(self, place: Place, writer: Filler, consumer: FutoinTrimmed) -> None:
        super().__init__(place)
        self.writer, self.consumer = writer, consumer
        self.first_retained = 1
        self.trims = 0

    def _work(self) -> None:
        log = self.connection.log(self.log)
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
