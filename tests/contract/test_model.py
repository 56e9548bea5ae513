"""Any sequence of operations gives the same answers, and the same errors, as the reference log in memory.

The clock is the test's. What differs by nature is put in one form first: ids that the log gave, and incarnations.
`HEADWATER_TEST_PROFILE=long` runs many more and longer sequences.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as settings_of_run
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from headwater.core import (
    ALL,
    AppendCondition,
    AppendResult,
    Event,
    EventLog,
    LogSettings,
    Query,
    QueryItem,
    Reading,
    SequencedEvent,
    Subscription,
)
from headwater.core.errors import EventLogError
from headwater.storage import log as stored_log
from headwater.storage.append.partitioner import Partitioner
from headwater.storage.index import index
from headwater.storage.maintenance import tasks, worker
from headwater.storage.memory import MemoryStore
from headwater.storage.segments import segment_log

from ..builders import answer_of, as_message
from ..night import IS_NIGHT
from .conftest import ManualClock
from .kinds import KINDS, Bench

NAME = "orders"
CONSUMERS = [("spark", "archiver"), ("spark", "mirror")]

types = st.sampled_from(["A", "B", "C"])
tags = st.lists(st.sampled_from(["x:1", "x:2", "x", "y:1", "y:1:2", "xx:1", "y/1", ":1"]), max_size=3).map(tuple)
ids = st.sampled_from(["", "", "", "1", "2", "3", "4", "5", "6"])
events = st.builds(
    Event,
    type=types,
    data=st.sampled_from([b"", b"data", b"\x00\xff", bytes(700)]),
    tags=tags,
    id=ids,
    source=st.sampled_from(["", "", "urn:a"]),
    attributes=st.sampled_from([{}, {"subject": "s"}, {"subject": "t", "time": "2013-01-01T00:00:00Z"}]),
    group_key=st.sampled_from(["", "", "k", "l"]),
).map(as_message)
appends = st.lists(events, min_size=1, max_size=6)
items = st.tuples(st.lists(types, max_size=2).map(tuple), tags, tags).filter(any).map(lambda item: QueryItem(*item))
queries = st.one_of(st.just(ALL), st.lists(items, min_size=1, max_size=3).map(lambda given: Query.of(*given)))
places = st.one_of(st.integers(0, 12), st.integers(0, 60))
"""A position, counted back from two above the head: so that most are near what is there."""
selections = st.fixed_dictionaries(
    {
        "query": queries,
        "start": st.sampled_from(["", "", "from_", "after"]),
        "place": places,
        "backwards": st.booleans(),
        "limit": st.sampled_from([None, None, 0, 1, 3]),
        "partition": st.sampled_from([None, None, 0, 0, 1, 3]),
    }
)
settings = st.builds(
    LogSettings,
    partitions=st.sampled_from([1, 3]),
    partition_by=st.sampled_from(["", "", "source", "subject", "tag:x"]),
    event_bytes_max=st.just(1024),
    id_horizon=st.sampled_from([None, None, 4]),
    keeps_history=st.booleans(),
)


class Twins(RuleBasedStateMachine):
    """A log under test, and the model beside it."""

    kind: str
    place: Path
    """Where each run gets a directory."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.directory = Path(tempfile.mkdtemp(dir=self.place))
        self.bench: Bench = KINDS[self.kind][0](self.directory, self.clock)
        self.models = MemoryStore(self.clock)
        self.generated: set[int] = set()
        """Events whose id the log gave."""
        self.repeatable: list[tuple[list[Event], AppendCondition | None]] = []
        self.followed: tuple[Query, Subscription] | None = None

    @property
    def log(self) -> EventLog:
        return self.bench.log(NAME)

    @property
    def model(self) -> EventLog:
        return self.models.open(NAME)

    @initialize(settings=settings)
    def create(self, settings: LogSettings) -> None:
        self.bench.create(NAME, settings)
        self.models.create(NAME, settings)

    @rule(events=appends, partition=st.sampled_from([None, None, None, 0, 2, 3]))
    def append(self, events: list[Event], partition: int | None) -> None:
        self._append(events, None, partition)

    @rule(events=appends, query=queries, place=places, requires_match=st.sampled_from([False, False, True]))
    def append_under_condition(self, events: list[Event], query: Query, place: int, requires_match: bool) -> None:
        self._append(events, AppendCondition(query, self._position(place), requires_match), None)

    @rule(events=appends, query=queries)
    def append_unless_it_ever_happened(self, events: list[Event], query: Query) -> None:
        self._append(events, AppendCondition(query), None)

    @rule(events=appends, query=queries)
    def read_decide_append(self, events: list[Event], query: Query) -> None:
        """As a decision model does: what it read is still so, and its append goes in (but for its ids)."""
        self._append(events, AppendCondition(query, self.model.head()), None)

    @precondition(lambda self: self.repeatable)
    @rule(data=st.data(), part=st.booleans())
    def repeat_an_append(self, data: st.DataObject, part: bool) -> None:
        events, condition = data.draw(st.sampled_from(self.repeatable))
        self._append(events[1:] if part and len(events) > 1 else events, condition, None)

    @rule(selections=st.lists(selections, min_size=1, max_size=6))
    def read(self, selections: list[dict[str, Any]]) -> None:
        for selection in selections:
            self._read(**selection)

    def _read(self, query: Query, start: str, place: int, **selection: Any) -> None:
        if start:
            selection[start] = self._position(place)
        self._both(lambda log: self._shown(log.read(query, **selection)))

    @rule(place=places)
    def trim(self, place: int) -> None:
        below = self._position(place)
        self._both(lambda log: log.trim(below))

    @rule(
        consumer=st.sampled_from(CONSUMERS),
        operation=st.sampled_from(["register", "acknowledge", "acknowledge", "reset", "unregister"]),
        place=places,
        epoch=st.sampled_from([None, None, 1, 2]),
    )
    def use_a_consumer(self, consumer: tuple[str, str], operation: str, place: int, epoch: int | None) -> None:
        number = self._position(place)
        operations: dict[str, Callable[[EventLog], object]] = {
            "register": lambda log: log.register_consumer(*consumer, after=number if epoch is None else None),
            "acknowledge": lambda log: log.acknowledge(*consumer, number, epoch=epoch),
            "reset": lambda log: log.reset_consumer(*consumer, number),
            "unregister": lambda log: log.unregister_consumer(*consumer),
        }
        self._both(operations[operation])

    @rule(settings=settings)
    def change_settings(self, settings: LogSettings) -> None:
        for store in (self.bench.store, self.models):
            fixed = store.open(NAME).info().settings
            if (fixed.partitions, fixed.partition_by) == (settings.partitions, settings.partition_by):
                store.change(NAME, settings, drops_at_most=None)

    @rule(step=st.sampled_from([1, 50, 5000, -3, -4000]))
    def let_time_pass(self, step: int) -> None:
        self.clock.now += step

    @rule(step=st.integers(-10_000, 10_000))
    def seek_a_time(self, step: int) -> None:
        if self.bench.is_local:
            at = self.clock.now + step
            self._both(lambda log: log.sequence_number_at(at))  # type: ignore[attr-defined]

    @rule(query=queries, place=st.one_of(st.none(), places))
    def subscribe(self, query: Query, place: int | None) -> None:
        self._stop_following()
        after = None if place is None else min(self._position(place), self.model.head())
        try:
            self.model.subscribe(query, after=after).close()
        except EventLogError as expected:
            with pytest.raises(type(expected)):
                self.log.subscribe(query, after=after)
        else:
            self.followed = query, self.log.subscribe(query, after=after)

    @precondition(lambda self: self.followed is not None)
    @rule()
    def follow(self) -> None:
        assert self.followed is not None
        query, subscription = self.followed
        expected = [each for each in self.model.read(query) if each.sequence_number > subscription.cursor]
        found: list[SequencedEvent] = []
        while len(found) < len(expected) and (events := subscription.poll(20)):
            found += events
        found += subscription.poll(0)
        assert self._shown(found) == self._shown(expected)

    @precondition(lambda self: self.bench.is_durable)
    @rule(loses_index=st.booleans())
    def reopen(self, loses_index: bool) -> None:
        """What is derived may be lost: it is made again."""
        self._stop_following()
        self.bench.close()
        if loses_index:
            for index in self.directory.glob("logs/*/idx"):
                shutil.rmtree(index)
        self.bench.reopen()
        self.model._partitioner = Partitioner(self.model.settings)  # type: ignore[attr-defined]

    @precondition(lambda self: hasattr(self.bench.store, "maintain"))
    @rule()
    def maintain(self) -> None:
        """Sealing, merging and reclaiming change no answer."""
        self.bench.store.maintain()  # type: ignore[attr-defined]

    @rule(settings=settings)
    def make_again(self, settings: LogSettings) -> None:
        self._stop_following()
        for store in (self.bench.store, self.models):
            store.delete(NAME)
            store.create(NAME, settings)
        self.repeatable.clear()

    @rule()
    def compare_everything(self) -> None:
        self._both(lambda log: log.head())
        for partition in (None, *range(self.model.info().settings.partitions)):
            for backwards in (False, True):
                self._both(lambda log: self._shown(log.read(partition=partition, backwards=backwards)))  # noqa: B023
        self._both(lambda log: log.consumers())
        self._both(
            lambda log: [
                getattr(log.info(), name)
                for name in ("name", "settings", "head", "first_retained", "events", "created_at", "partition_events")
            ]
        )

    def teardown(self) -> None:
        try:
            if NAME in self.models.names():
                self.compare_everything()
        finally:
            self._stop_following()
            self.bench.close()
            shutil.rmtree(self.directory)

    def _append(self, events: list[Event], condition: AppendCondition | None, partition: int | None) -> None:
        answer = self._both(lambda log: log.append(events, condition, partition=partition))
        if isinstance(answer, AppendResult) and not answer.was_stored:
            for number, event in enumerate(events, answer.first):
                if not event.id:
                    self.generated.add(number)
            if all(event.id for event in events):
                self.repeatable.append((events, condition))

    def _both(self, operation: Callable[[EventLog], Any]) -> Any:
        """Do it on both; the answers, or errors, must be the same."""
        expected, found = (self._answer(log, operation) for log in (self.model, self.log))
        assert found == expected
        return expected

    @staticmethod
    def _answer(log: EventLog, operation: Callable[[EventLog], Any]) -> Any:
        try:
            return operation(log)
        except EventLogError as error:
            kind, data, message = answer_of(error)
            if incarnation := vars(error).get("incarnation"):
                data, message = {**vars(error), "incarnation": ""}, str(message).replace(incarnation, "")
            return kind, data, message

    def _position(self, place: int) -> int:
        return max(self.model.head() + 2 - place, 0)

    def _shown(self, found: Reading | Sequence[SequencedEvent]) -> tuple[int | None, list[SequencedEvent]]:
        shown = [each._replace(id="given") if each.sequence_number in self.generated else each for each in found]
        return getattr(found, "head", None), shown

    def _stop_following(self) -> None:
        if self.followed is not None:
            self.followed[1].close()
            self.followed = None


def test_a_log_answers_as_the_model_does(kind: str, tmp_path: Path) -> None:
    bounds = settings_of_run()
    if not KINDS[kind][0].is_local or (kind == "postgres" and not IS_NIGHT):  # each step is a request, or commits
        bounds = settings_of_run(bounds, max_examples=max(bounds.max_examples // 4, 1))
    twins = type("Twins", (Twins,), {"kind": kind, "place": tmp_path})
    run_state_machine_as_test(twins, settings=bounds)  # type: ignore[no-untyped-call]


def test_a_log_of_many_small_segments_answers_as_the_model_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that in a short life there is much to seal, to merge, to give back and to keep as history."""
    for module, name, value in (
        (segment_log, "SEGMENT_EVENTS_MAX", 4),
        (segment_log, "SEGMENT_BYTES_MIN", 16 * 1024),
        (index, "PART_EVENTS_MAX", 4),
        (tasks, "FILES_MAX", 3),
        (tasks, "MERGE_FACTOR", 2),
        (stored_log, "CLEAN_POSTINGS_MIN", 3),
    ):
        assert hasattr(module, name)
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(worker.IndexWorker, "run", lambda self, job: worker.do(job).problem)
    bounds = settings_of_run(stateful_step_count=50)
    twins = type("Twins", (Twins,), {"kind": "segments", "place": tmp_path})
    run_state_machine_as_test(twins, settings=bounds)  # type: ignore[no-untyped-call]
