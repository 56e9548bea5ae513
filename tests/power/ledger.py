"""What the server had promised at each moment of a record: who was told what, by the marks of the driver.

A thing that is changed step by step, one step after the other, is a *register*: a log under its name, a user, a
subscription, a position. A step begins (it is asked for) and is done (it is acknowledged). At any moment a register
has the value of the last step that was done, or that of one which has begun since.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .recording import Operation, Record

DURABLE = ("log", "user", "subscription", "consumer")
"""Registers each step of which is durable when it is acknowledged; and with it whatever the state was told before."""
NOTHING: Any = None


@dataclass
class Step:
    """One change of a register."""

    began: int
    """The number of the record by which it was asked for."""
    value: Any
    done: int | None = None
    answer: Any = NOTHING


@dataclass
class Register:
    """See the module."""

    steps: list[Step] = field(default_factory=list)

    def possible(self, cut: int, since: int | None = None) -> list[Step]:
        """The last step that was done before that record, and those that have begun since; older first.

        With no step done, the first is one without a value. `since`: only what was done by then has to be there.
        """
        last = -1
        for place, step in enumerate(self.steps):
            if step.done is not None and step.done < (cut if since is None else since):
                last = place
        first = self.steps[last] if last >= 0 else Step(-1, NOTHING)
        return [first, *(step for step in self.steps[last + 1 :] if step.began < cut)]


class Sent(NamedTuple):
    """Events that were sent together."""

    number: int
    """Of the mark."""
    log: str
    markers: tuple[str, ...]


class Acknowledged(NamedTuple):
    """Events that were acknowledged together."""

    number: int
    log: str
    markers: tuple[str, ...]
    numbers: dict[str, int]
    """Of those of whom the protocol says it."""


class Ledger:
    """All marks of a record."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.registers: dict[tuple[str, ...], Register] = defaultdict(Register)
        self.sent: list[Sent] = []
        self.acknowledged: list[Acknowledged] = []
        self.refused: dict[str, set[str]] = defaultdict(set)
        """By log."""
        self.numbers: dict[str, dict[str, int]] = defaultdict(dict)
        """By log and marker: what was told, and seen in the end."""
        self.stops: list[int] = []
        """When the server had ended in order."""
        self.settled: dict[str, list[tuple[int, int]]] = defaultdict(list)
        """By receiver: at which record it was about to settle which event."""
        steps: dict[int, Step] = {}
        for record in records:
            if record.operation is Operation.MARK:
                self._take(record.number, json.loads(record.data), steps)

    def _take(self, number: int, mark: dict[str, Any], steps: dict[int, Step]) -> None:
        match mark:
            case {"sent": markers, "log": log}:
                self.sent.append(Sent(number, log, tuple(markers)))
            case {"acknowledged": markers, "log": log, "numbers": numbers}:
                self.acknowledged.append(Acknowledged(number, log, tuple(markers), numbers))
                self.numbers[log] |= numbers
            case {"refused": markers, "log": log}:
                self.refused[log] |= set(markers)
            case {"seen": numbers, "log": log}:
                self.numbers[log] |= numbers
            case {"step": id, "register": name, "value": value}:
                steps[id] = Step(number, value)
                self.registers[tuple(name)].steps.append(steps[id])
            case {"done": id, "answer": answer}:
                steps[id].done, steps[id].answer = number, answer
            case {"settling": event, "receiver": receiver}:
                self.settled[receiver].append((number, event))
            case {"stopped": _}:
                self.stops.append(number)
            case _:
                raise AssertionError(f"unknown mark: {mark}")

    def of(self, kind: str) -> Iterator[tuple[tuple[str, ...], Register]]:
        """The registers of that kind, by the rest of their names."""
        for name, register in self.registers.items():
            if name[0] == kind:
                yield name[1:], register

    def state_durable_since(self, cut: int) -> int:
        """What the state was told before that record was durable at that cut: an acknowledged change came after it."""
        steps = [step for name, register in self.registers.items() if name[0] in DURABLE for step in register.steps]
        began = [step.began for step in steps if step.done is not None and step.done < cut]
        return max([*began, *(stop for stop in self.stops if stop < cut)], default=0)
