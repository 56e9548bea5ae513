"""What every protocol says of a directory that a power cut has left: a whole server is started on it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from headwater.core.event import SequencedEvent
from headwater.flight.client import Ticket
from tests.amqp.asking import DURABLE, EARLIEST, OFFSET, annotation
from tests.load import losses
from tests.load.clients import Writer
from tests.load.ledger import Book, text_of
from tests.load.place import LOG, RESOURCE, TIMEOUT_S, ask, call, current_state
from tests.load.writers import ONE_EACH, STAGED_WRITER

from .check import marked
from .clients import COMPONENT, CONTAINER, LINK
from .ledger import Ledger
from .operators import CNE
from .serving import Served


class WholeCheck:
    """One state, and the faults that a client of some protocol finds in it."""

    def __init__(self, directory: Path, folder: Path, ledger: Ledger, cut: int) -> None:
        """`folder` is for the server's configuration; `cut` is the record before which the power failed."""
        self._ledger, self._cut = ledger, cut
        self._served = Served(folder, directory / "data")
        self.faults: list[str] = []

    def run(self) -> list[str]:
        """All faults."""
        with self._served as served:
            place = served.place
            with place.client() as server:
                log = server.log(LOG)
                events = list(log.read())
                self._check_acknowledged({marked(event.data)[0]: event.sequence_number for event in events})
                self._check_readers([event.sequence_number for event in events])
                self._check_notifications(events)
                self._check_commit()
                self._append_by_all(log.head())
                self._check_readers([event.sequence_number for event in log.read()])
            served.stop()
        if "Traceback" in served.complaints or "level=error" in served.complaints:
            self.faults.append(f"the server complained: {served.complaints[-3000:]}")
        return self.faults

    def _check_acknowledged(self, found: dict[str, int]) -> None:
        for each in self._ledger.acknowledged:
            if each.log == LOG and each.number < self._cut:
                missing = [marker for marker in each.markers if marker not in found]
                self._say(missing, f"acknowledged, and not read over HTTP: {missing[:5]}")
                wrong = {it: number for it, number in each.numbers.items() if found.get(it, number) != number}
                self._say(wrong, f"read over HTTP as other events than were told: {wrong}")

    def _check_readers(self, numbers: list[int]) -> None:
        """Each protocol reads the same events; receivers that were remembered get them too, from where they were."""
        place = self._served.place
        with place.amqp_client() as client:
            taken = client.receiver(LOG, filter=EARLIEST, credit=1000).take(len(numbers))
            self._same("AMQP", [int(annotation(delivery, OFFSET)) for delivery in taken], numbers)
        with place.amqp_client(container_id=CONTAINER) as client:
            receiver = client.receiver(LOG, name=LINK, filter=EARLIEST, source=DURABLE)
            if numbers:
                [first] = receiver.take(1, 1.0) or [None]
                position = numbers[-1] if first is None else int(annotation(first, OFFSET)) - 1
                settled = [event for at, event in self._ledger.settled["durable"] if at < self._cut]
                ahead = position > max(settled, default=0)
                self._say(ahead, f"the durable receiver goes on after {position}, settled is {max(settled, default=0)}")
        with place.bulk_client() as bulk:
            batches = bulk.read(Ticket(LOG, columns=("sequence_number",)))
            read = [number for batch in batches for number in batch.column(0).to_pylist()]
            self._same("Flight", read, numbers)
        self._check_poll(numbers)

    def _check_poll(self, numbers: list[int]) -> None:
        consumer = self._poll("registerConsumer", component=COMPONENT)
        self._say(consumer is not True, f"the consumer of FutoIn cannot be registered again: {consumer}")
        read, after = [], None
        while events := self._poll("pollEvents", component=COMPONENT, last_id=after):
            read += [int(event["id"]) for event in events]
            after = str(read[-1])
        self._same("FutoIn", read, numbers[len(numbers) - len(read) :])

    def _poll(self, function: str, **parameters: Any) -> Any:
        asked = call(f"futoin.evt.poll:1.1:{function}", **parameters)
        reply = json.loads(ask(self._served.place, "POST", f"/futoin/{LOG}", asked))
        return reply.get("r", reply)

    def _check_notifications(self, events: list[SequencedEvent]) -> None:
        """Subscriptions are as they were acknowledged; the current state is the newest that was written."""
        listed = json.loads(ask(self._served.place, "GET", f"{CNE}/subscriptions"))
        found = {each["ResourceAddress"]: each["EndpointUri"] for each in listed}
        for (resource,), register in self._ledger.of("subscription"):
            allowed = [step.value for step in register.possible(self._cut)]
            wrong = found.get(resource) not in allowed
            self._say(wrong, f"subscription {resource} is {found.get(resource)}, may be {allowed}")
        written = [marker for event in events if (marker := marked(event.data)[0]).startswith("good:cne:")]
        if written:
            [value] = current_state(self._served.place)["data"]["values"]
            newest = text_of(written[-1])
            self._say(
                value["value"] != newest, f"the current state of {RESOURCE} is {value['value'][:40]}, not {newest}"
            )

    def _check_commit(self) -> None:
        """A commit that was answered gets the same answer, over the network too."""
        done = [step for step in self._ledger.registers["commit",].steps if (step.done or self._cut) < self._cut]
        place = self._served.place
        with place.bulk_client() as bulk:
            state = bulk.writer(LOG, STAGED_WRITER)
            if done and (state is None or state.batch < done[-1].value):
                self.faults.append(f"the writer is at {state}, batch {done[-1].value} was committed")
            elif done and state is not None and state.batch == done[-1].value:
                last = done[-1].answer
                again = bulk.commit(LOG, STAGED_WRITER, done[-1].value, last["stages"])
                is_same = (again.first, again.last, again.was_applied) == (last["first"], last["last"], True)
                self._say(not is_same, f"the commit of {last} is answered as {again}")

    def _append_by_all(self, head: int) -> None:
        """Each protocol appends, above all that was there."""
        for kind in ONE_EACH:
            after: type[Writer] = type("After", (kind,), {"name": f"after_{kind.name}"})
            writer = after(self._served.place, Book())
            writer.is_lost = losses.nothing
            writer.start()
            until = time.monotonic() + TIMEOUT_S
            while not writer.acknowledged and writer.fault is None and time.monotonic() < until:
                time.sleep(0.005)
            writer.stop()
            self._say(writer.fault, f"{writer.name}: {writer.fault!r}")
            self._say(not writer.acknowledged, f"{writer.name} appended nothing")
            low = [number for number in writer.told.values() if number <= head]
            self._say(low, f"{writer.name} was given numbers again: {low}, the head was {head}")

    def _same(self, protocol: str, found: list[int], wanted: list[int]) -> None:
        if found != wanted:
            missing, surplus = sorted(set(wanted) - set(found))[:5], sorted(set(found) - set(wanted))[:5]
            self.faults.append(
                f"{protocol} read {len(found)} events, of {len(wanted)}: without {missing}, more {surplus}"
            )

    def _say(self, is_so: object, fault: str) -> None:
        if is_so:
            self.faults.append(fault)
