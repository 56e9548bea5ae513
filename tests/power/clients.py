"""The writers and readers of `tests.load`, which say what they ask for and what they are told."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any, ClassVar

from headwater.core.condition import AppendCondition
from headwater.core.errors import AppendConditionFailed, DuplicateEventId
from headwater.core.event import Event
from headwater.core.query import Query
from tests.amqp.asking import DURABLE, EARLIEST
from tests.load import readers, writers
from tests.load.clients import Reader, Writer
from tests.load.place import Place
from tests.load.writers import STAGED_WRITER

from .marking import Marking, text_in
from .serving import ROLLING, TRIMMED
from .watched import FRAME_ROWS

CONTAINER, LINK, GROUP = "power", "durable", "power"
"""Of the receivers that the server remembers."""
COMPONENT = "Polling"
"""Of the consumer of FutoIn."""


# Writers


class MarkingWriter(Writer):
    """One that says what it sends, and what was acknowledged."""

    pause_s = 0.05
    life = 10
    """So often it appends in each life of the server, at least."""
    marking: Marking

    def _append_all(self, markers: list[str]) -> bool:
        recording = self.marking.recording
        recording.mark(sent=markers, log=self.log)
        if not super()._append_all(markers):
            return False
        numbers = {marker: self.told[marker] for marker in markers if marker in self.told}
        recording.mark(acknowledged=markers, log=self.log, numbers=numbers)
        return True


class Decider(MarkingWriter, writers.Decider):
    """Conditions that hold; and after each, one that does not hold, and an id that is taken: both are refused."""

    def _append_all(self, markers: list[str]) -> bool:
        done = super()._append_all(markers)
        if done and len(self.acknowledged) % 5 == 0:
            self._be_refused(markers[0])
        return done

    def _be_refused(self, known: str) -> None:
        refused = f"{known}:refused".replace(f":{self.name}:", f":{self.name}_refused:").removesuffix(":refused")
        self.marking.recording.mark(refused=[refused], log=self.log)
        log = self.connection.log(self.log)
        stale = AppendCondition(Query.where(tags=self.tags), 0)
        with contextlib.suppress(AppendConditionFailed):
            log.append([Event("Good", self.payload(refused), self.tags, refused, "good")], stale)
            raise AssertionError("a condition that does not hold was taken")
        with contextlib.suppress(DuplicateEventId):
            log.append([Event("Other", self.payload(refused), (), known, "good")])
            raise AssertionError("an id that is taken was taken again")


class CloudEvents(MarkingWriter, writers.CloudEvents):
    pass


class AmqpOne(MarkingWriter, writers.AmqpOne):
    pass


class AmqpMany(MarkingWriter, writers.AmqpMany):
    pause_s = 0.2
    life = 4


class Futoin(MarkingWriter, writers.Futoin):
    pass


class Cne(MarkingWriter, writers.Cne):
    pass


class Flight(MarkingWriter, writers.Flight):
    pass


class Staged(MarkingWriter, writers.Staged):
    """Each stage, and each commit, is a step of its own. Every third batch is one append, every third becomes segments,
    and the others take several appends."""

    pause_s = 0.2
    life = 4

    def _append_all(self, markers: list[str]) -> bool:
        batch = int(markers[0].rpartition(":")[2]) // self.together
        self.marking.recording.mark(sent=markers, log=self.log)
        kept = markers[:12] if batch % 3 == 0 else markers
        stages = []
        for part, rows in enumerate((kept[: len(kept) // 2], kept[len(kept) // 2 :])):
            with self.marking.step("stage", str(batch), str(part), value=rows) as answer:
                attempt, batches = self.losses, [self._rows(rows)]
                if batch % 3 == 1:
                    batches = [batches[0].slice(start, FRAME_ROWS) for start in range(0, len(rows), FRAME_ROWS)]
                staged = self.connection.stage(self.log, STAGED_WRITER, batch, part, attempt, batches)
                answer["stage"] = staged.stage
            stages.append(staged.stage)
        with self.marking.step("commit", value=batch) as answer:
            committed = self.connection.commit(self.log, STAGED_WRITER, batch, stages)
            answer |= {"first": committed.first, "last": committed.last, "stages": stages}
        self.marking.recording.mark(
            acknowledged=kept, log=self.log, numbers={kept[0]: committed.first, kept[-1]: committed.last}
        )
        return True


class Filler(MarkingWriter, writers.Filler):
    """Large events for the log that is trimmed."""

    log = TRIMMED
    pause_s = 0.02
    life = 50

    def text(self, marker: str) -> str:
        return text_in(self.log, marker)


class Roller(Filler):
    """And for the one that trims itself."""

    name = "roller"
    log = ROLLING


WRITERS: tuple[type[MarkingWriter], ...] = (
    Decider, CloudEvents, AmqpOne, AmqpMany, Futoin, Cne, Flight, Staged, Filler, Roller,
)  # fmt: skip


# Readers


class Settler(Reader):
    """A receiver that says what it is about to settle."""

    may_repeat = True
    marking: Marking

    def note(self, number: int, text: bytes) -> None:
        super().note(number, text)
        self.marking.recording.mark(settling=number, receiver=self.name)


class DurableReceiver(Settler, readers.Amqp):
    """A source that the server remembers: it goes on by itself where it was."""

    name = "durable"
    connects = partial(Place.amqp_client, container_id=CONTAINER)

    def _receiver(self) -> Any:
        return self.connection.receiver(self.log, name=LINK, credit=20, filter=EARLIEST, source=DURABLE)


class GroupReceiver(Settler, readers.AmqpGroup):
    """The one receiver of a consumer group."""

    name, group = "group", GROUP
    options: ClassVar[dict[str, Any]] = {"credit": 20}


class Poller(readers.FutoinPoll):
    """A consumer of FutoIn, whose acknowledgements are steps."""

    marking: Marking

    def _call(self, function: str, **given: Any) -> Any:
        owner = self.place.user
        if function == "registerConsumer":
            with self.marking.step("consumer", self.log, owner, COMPONENT, value=True):
                return super()._call(function, **given)
        if given["last_id"] is None:
            return super()._call(function, **given)
        with self.marking.step("position", self.log, owner, COMPONENT, value=int(given["last_id"])):
            return super()._call(function, **given)


class Listener(readers.Webhook):
    """A webhook."""


READERS: tuple[type[Reader], ...] = (DurableReceiver, GroupReceiver, Poller, Listener)
