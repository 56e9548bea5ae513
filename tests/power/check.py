"""What must be so of a data directory that a power cut has left, by what had been promised before."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwater.amqp.positions.stored import load
from headwater.cne.notifications.records import Subscription
from headwater.cne.registry import Registry
from headwater.cne.settings import Settings
from headwater.core.event import Event, SequencedEvent
from headwater.server.users.accounts import KIND, decode_entry
from headwater.storage import Engine, StoredLog, check_directory
from headwater.storage.staging.commit import commit_staged
from tests.load.place import LOG
from tests.load.writers import STAGED_WRITER

from .clients import CONTAINER, GROUP, LINK
from .ledger import NOTHING, Ledger, Step
from .marking import text_in
from .serving import ROLLING, TRIMMED, USER

_PAYLOAD = re.compile(rb"good:\w+:\d+~[0-9a-f]*")
AFTERWARDS = "good:afterwards:0"
"""The marker of what is appended when the power is back."""


class Check:
    """One state, and the faults that are found in it."""

    def __init__(self, directory: Path, ledger: Ledger, cut: int) -> None:
        """`cut`: the record before which the power failed."""
        self._directory, self._ledger, self._cut = directory, ledger, cut
        self.faults: list[str] = []
        self._events: dict[str, list[SequencedEvent]] = {}
        """What there is when the power is back, by log."""
        self._added: dict[str, list[str]] = defaultdict(list)
        """The markers of what is committed and appended then; some of it may have been there."""

    def run(self) -> list[str]:
        """All faults; empty if every promise was kept."""
        if (self._directory / "state.sqlite").exists():
            with self._telling("headwater check"):
                for each in check_directory(self._directory).logs:
                    self.faults += [f"{each.name}: headwater check: {problem}" for problem in each.problems]
        with self._telling("opening the directory"), self._engine() as engine:
            self._look(engine)
        with self._telling("opening it again"), self._engine() as engine:
            for name in self._events:
                with self._telling(name):
                    self._look_again(engine.open(name))
        return self.faults

    def _engine(self) -> Engine:
        return Engine(self._directory, maintains=False, fatal=self.faults.append)

    def _look(self, engine: Engine) -> None:
        self._check_logs(engine)
        self._check_users(engine)
        self._check_subscriptions(engine)
        self._check_orphans(engine)
        for name in engine.names():
            with self._telling(name):
                log = engine.open(name)
                self._events[name] = list(log.read())
                self._check_events(log)
                self._check_trimmed(log)
                self._check_consumers(log)
                if name == LOG:
                    self._check_receivers(engine, log)
                    self._check_batches(log)
                self._append(log)

    def _look_again(self, log: StoredLog) -> None:
        """What was there is there, and behind it what came after the power was back."""
        before, events = self._events[log.name], list(log.read())
        self._say(events[: len(before)] != before, f"{log.name}: other events when it is opened again")
        there = {marked(event.data)[0] for event in before}
        wanted = [marker for marker in self._added.get(log.name, ()) if marker not in there]
        found = [marked(event.data)[0] for event in events[len(before) :]]
        self._say(found != wanted, f"{log.name}: behind what was there is {found}, not {wanted}")

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever it is: it should not have come to that
            self.faults.append(f"{what}: {type(error).__name__}: {error}")

    def _say(self, is_so: object, fault: str) -> None:
        if is_so:
            self.faults.append(fault)

    # The state

    def _check_register(
        self, what: str, steps: Sequence[Step], found: Any, is_it: Callable[[Step, Any], bool] | None = None
    ) -> None:
        is_it = is_it or (lambda step, value: step.value == value)
        if not any(is_it(step, found) for step in steps):
            self.faults.append(f"{what} is {found!r}, may be {[step.value for step in steps]}")

    def _check_logs(self, engine: Engine) -> None:
        names = engine.names()
        for (name,), register in self._ledger.of("log"):
            found = None
            if name in names:
                with self._telling(name):
                    info = engine.open(name).info()
                    found = (asdict(info.settings), info.incarnation)
            self._check_register(f"log {name}", register.possible(self._cut), found, _is_log)

    def _check_users(self, engine: Engine) -> None:
        stored = {decode_entry(item).name for item in engine.state.items(KIND)}
        for (name,), register in self._ledger.of("user"):
            self._check_register(f"user {name}", register.possible(self._cut), True if name in stored else NOTHING)

    def _check_subscriptions(self, engine: Engine) -> None:
        registry = Registry(engine.state, "subscription", Subscription, Settings())
        registry.load()
        endpoints = {record.resource: record.endpoint for record in registry.by_id.values()}
        for (resource,), register in self._ledger.of("subscription"):
            self._check_register(f"subscription {resource}", register.possible(self._cut), endpoints.get(resource))

    def _check_orphans(self, engine: Engine) -> None:
        """Whatever a deleted log has left is removed when the directory is opened."""
        known = set()
        for name in engine.names():
            with self._telling(name):
                known.add(engine.open(name).directory.name)
        there = {path.name for path in (self._directory / "logs").glob("*/")}
        self._say(there - known, f"directories that belong to no log: {sorted(there - known)}")

    # A log

    def _since(self, log: StoredLog) -> int:
        """The record at which this incarnation was asked for."""
        steps = self._ledger.registers["log", log.name].possible(self._cut)
        for step in self._ledger.registers["log", log.name].steps:
            if step.value is not None and step.answer and step.answer["incarnation"] == log.info().incarnation:
                return step.began
        return steps[-1].began

    def _check_events(self, log: StoredLog) -> None:
        """Acknowledged events are there once, with their numbers; and nothing that was refused, or never sent."""
        name, since, cut = log.name, self._since(log), self._cut
        found: dict[str, int] = {}
        events = self._events[name]
        for event in events:
            marker, text = marked(event.data)
            self._say(text != text_in(name, marker), f"{name}: event {event.sequence_number} is damaged ({marker})")
            self._say(marker in found, f"{name}: {marker} is there twice")
            found[marker] = event.sequence_number
        info, numbers = log.info(), self._ledger.numbers[name]
        wanted = list(range(info.first_retained, info.head + 1))
        self._say([event.sequence_number for event in events] != wanted, f"{name}: there are gaps among its numbers")
        sent = {marker for each in self._ledger.sent if each.log == name and since <= each.number < cut
                for marker in each.markers}  # fmt: skip
        self._say(found.keys() - sent, f"{name}: never sent, and there: {sorted(found.keys() - sent)[:5]}")
        refused = found.keys() & self._ledger.refused[name]
        self._say(refused, f"{name}: refused, and there: {sorted(refused)[:5]}")
        for marker, number in found.items():
            told = numbers.get(marker, number)
            self._say(told != number, f"{name}: {marker} is event {number}, and was told to be event {told}")
        for each in self._ledger.acknowledged:
            if each.log == name and since <= each.number < cut:
                missing = [it for it in each.markers if it not in found and numbers.get(it, 0) >= info.first_retained]
                self._say(missing, f"{name}: acknowledged, and not there: {missing[:5]} ({info})")
                self._check_order(name, [found[it] for it in each.markers if it in found])

    def _check_order(self, name: str, numbers: list[int]) -> None:
        self._say(numbers != sorted(numbers), f"{name}: sent together, and not in order: {numbers}")

    def _check_trimmed(self, log: StoredLog) -> None:
        """What was trimmed stays trimmed; nothing is trimmed that nobody asked for."""
        first, since = log.info().first_retained, self._since(log)
        begun = [step for step in self._ledger.registers["trim", log.name].steps if step.began < self._cut]
        done = [step.answer["first_retained"] for step in begun if step.done is not None and step.done < self._cut]
        self._say(first < max(done, default=1), f"{log.name}: trimmed below {max(done, default=1)}, begins at {first}")
        if log.name == TRIMMED:
            asked = max((step.value for step in begun), default=1)
            self._say(first > asked, f"{log.name}: begins at {first}, trimmed was below {asked}")
        elif log.name == ROLLING:
            told = [number for each in self._ledger.acknowledged if each.log == log.name and since <= each.number
                    for number in each.numbers.values() if each.number < self._cut]  # fmt: skip
            self._say(first > max(told, default=1), f"{log.name}: nothing is left of it")

    def _check_consumers(self, log: StoredLog) -> None:
        """They are registered; their positions are among those that they had since the last one that was durable."""
        found = {(each.owner, each.component): each.acknowledged for each in log.consumers()}
        durable = self._ledger.state_durable_since(self._cut)
        for (name, *key), register in self._ledger.of("consumer"):
            if name != log.name:
                continue
            position = found.get((key[0], key[1]))
            is_there = NOTHING if position is None else True
            self._check_register(f"{name}: consumer {key}", register.possible(self._cut), is_there)
            steps = self._ledger.registers["position", name, *key].possible(self._cut, durable)
            if position is not None:
                self._check_register(f"{name}: position of {key}", steps, position, _is_position)
        for acknowledged in found.values():
            self._say(
                acknowledged > log.head(), f"{log.name}: a consumer is at {acknowledged}, the head at {log.head()}"
            )

    def _check_receivers(self, engine: Engine, log: StoredLog) -> None:
        """The positions that AMQP remembers are not ahead of what was settled, nor behind an orderly end."""
        positions = load(engine.state, log.info().incarnation, 0, 100)
        remembered = positions.remembered(f"{USER}@{CONTAINER}", LINK)
        group = positions.groups().get((GROUP, 0))
        stopped = max((stop for stop in self._ledger.stops if stop < self._cut), default=0)
        for name, after in (("durable", remembered and remembered.position.after), ("group", group)):
            settled = [each for each in self._ledger.settled[name] if each[0] < self._cut]
            highest = max((event for _, event in settled), default=0)
            kept = min(max((event for number, event in settled if number < stopped), default=0) - 40, highest)
            self._say((after or 0) > highest, f"the {name} receiver is at {after}, and has settled {highest}")
            self._say((after or 0) < kept, f"the {name} receiver is at {after}, and was at {kept} at an orderly end")

    def _check_batches(self, log: StoredLog) -> None:
        """A commit that was answered is answered the same again; what is staged can still be committed, once."""
        register = self._ledger.registers["commit",]
        done = [step for step in register.steps if step.done is not None and step.done < self._cut]
        state = log.writer(STAGED_WRITER)
        if done:
            last = done[-1]
            if state is None or state.batch < last.value:
                self.faults.append(f"the writer is at {state}, batch {last.value} was committed")
                return
            if state.batch == last.value:
                again = commit_staged(log, log.directory, STAGED_WRITER, last.value, last.answer["stages"])
                same = (again.first, again.last, again.was_applied) == (last.answer["first"], last.answer["last"], True)
                self._say(not same, f"batch {last.value} was committed as {last.answer}, again as {again}")
        self._commit_staged(log, done[-1].value + 1 if done else 0)

    def _commit_staged(self, log: StoredLog, batch: int) -> None:
        """The batch that was not acknowledged, if all of it was staged: now it is committed, what is not there yet."""
        stages, rows = [], list[str]()
        for part in ("0", "1"):
            steps = self._ledger.registers["stage", str(batch), part].possible(self._cut)
            if steps[-1].done is None or steps[-1].done >= self._cut:
                return
            stages.append(steps[-1].answer["stage"])
            rows += steps[-1].value
        commit_staged(log, log.directory, STAGED_WRITER, batch, stages)
        self._added[log.name] += rows

    def _append(self, log: StoredLog) -> None:
        """It goes on, above every number that was told."""
        numbers = [max(each.numbers.values(), default=0) for each in self._ledger.acknowledged
                   if each.log == log.name and each.number < self._cut]  # fmt: skip
        told = max(numbers, default=0)
        result = log.append([Event("Good", text_in(log.name, AFTERWARDS).encode(), (), AFTERWARDS)])
        self._added[log.name].append(AFTERWARDS)
        self._say(result.first <= told, f"{log.name}: number {result.first} is given again; {told} was told")


def marked(data: bytes) -> tuple[str, str]:
    """The marker in a payload, and the text that it is part of."""
    found = _PAYLOAD.search(data)
    text = found[0].decode() if found else ""
    return text.partition("~")[0], text


def _is_log(step: Step, found: Any) -> bool:
    if step.value is None or found is None:
        return step.value is None and found is None
    settings, incarnation = found
    return settings == step.value and incarnation == (step.answer or {}).get("incarnation", incarnation)


def _is_position(step: Step, found: int) -> bool:
    return (step.value or 0) == found
