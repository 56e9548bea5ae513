"""What a killed writer had been told, against what its log says when it is opened again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from headwater.core import AppendResult, LocalLog, Query

from .writer import event_of, payload_of

ROOT = Path(__file__).parents[2]


@dataclass
class Witness:
    """All that was ever acknowledged in one directory."""

    ids: dict[int, str] = field(default_factory=dict)
    """By sequence number."""
    last_append: tuple[int, list[str]] | None = None
    acknowledged: int = 0
    trimmed: int = 1

    def hear(self, line: bytes) -> None:
        """Take down one line of a writer."""
        said = json.loads(line)
        if "ids" in said:
            for number, id in enumerate(said["ids"], said["first"]):
                assert self.ids.setdefault(number, id) == id, f"{number} was given to {self.ids[number]} and to {id}"
            self.last_append = said["first"], said["ids"]
        self.acknowledged = max(self.acknowledged, said.get("acknowledged", 0))
        self.trimmed = max(self.trimmed, said.get("trimmed", 1))

    def check(self, log: LocalLog) -> None:
        """Everything acknowledged is there, once, in order, with its payload; nothing is there that was not sent."""
        info = log.info()
        assert self.trimmed <= info.first_retained <= info.head + 1
        events = list(log.read())
        assert [each.sequence_number for each in events] == list(range(info.first_retained, info.head + 1))
        found = {each.sequence_number: each.id for each in events}
        expected = {number: id for number, id in self.ids.items() if number >= info.first_retained}
        assert {number: found.get(number) for number in expected} == expected
        for each in events:
            assert each.data == payload_of(each.id), f"the payload of event {each.sequence_number} is damaged"
            assert each.event == event_of(each.id)
        assert len(set(found.values())) == len(found)
        self._check_appends(log, found)
        consumers = log.consumers()
        assert not self.acknowledged or consumers[0].acknowledged >= self.acknowledged

    def _check_appends(self, log: LocalLog, found: dict[int, str]) -> None:
        """Appends are there whole; the index knows what the frames hold; a retry is recognised."""
        calls: dict[str, int] = {}
        for number, id in found.items():
            call, _, place = id.rpartition(".")
            assert calls.setdefault(call, number - int(place)) == number - int(place), f"append {call} is torn"
        for number, id in list(found.items())[-20:]:
            assert [each.sequence_number for each in log.read(Query.where(tags=[f"id:{id}"]))] == [number]
        if self.last_append is not None and self.last_append[0] >= log.info().first_retained:
            first, ids = self.last_append
            again = log.append([event_of(id) for id in ids])
            assert again == AppendResult(first, first + len(ids) - 1, was_stored=True)


class Writer:
    """A writer process, and what it says."""

    def __init__(self, directory: Path, round: int, fault: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.writer", str(directory), str(round), fault],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        self._said: IO[bytes] = self._process.stdout
        self._complained: IO[bytes] = self._process.stderr

    def kill_after(self, appends: int, witness: Witness) -> None:
        """Let so many appends be acknowledged, kill it, and take down all that it had said by then."""
        with self._held():
            while appends:
                line = self._said.readline()
                self._take_down(line, witness)
                appends -= b'"ids"' in line
            self._process.kill()
            self._hear_out(witness)

    def await_end(self, witness: Witness) -> tuple[int, str]:
        """Take down what it says until it ends; its exit code and what it wrote to standard error."""
        with self._held():
            complaint = self._hear_out(witness)
            return self._process.wait(60), complaint

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Whatever happens meanwhile, the process is over afterwards."""
        try:
            yield
        finally:
            self._process.kill()
            self._process.wait()
            self._said.close()
            self._complained.close()

    def _hear_out(self, witness: Witness) -> str:
        while line := self._said.readline():
            self._take_down(line, witness)
        return self._complained.read().decode()

    def _take_down(self, line: bytes, witness: Witness) -> None:
        if not line:
            raise AssertionError(f"the writer ended by itself: {self._complained.read().decode()}")
        if line.endswith(b"\n"):  # the last one may be cut by the kill
            witness.hear(line)
