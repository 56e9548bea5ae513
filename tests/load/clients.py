"""Well-behaved clients, each on a thread of its own: who write remember what was acknowledged, who read what they saw.

Each event carries a marker, `good:WRITER:NUMBER`. A writer sends one event after the other and repeats one that was
refused because the server is busy, under the same id; any other refusal is a fault. So is a lost connection, unless
`is_lost` says that it is to be expected: then a client connects anew, and goes on where it was.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from . import losses
from .ledger import Book, Page
from .place import LOG, TIMEOUT_S, Place

TRIMMED = "trimmed"
"""The log that forgets."""


class Client(ABC):
    name: ClassVar[str]
    log: ClassVar[str] = LOG
    connects: ClassVar[Callable[[Place], AbstractContextManager[Any]]] = nullcontext
    """Gives the `connection` that it works with; the place itself, if each request has a connection of its own."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.connection: Any = None
        self.is_lost: losses.Losses = losses.server_ended
        self.chance = random.Random()
        """What it does now and then; a run seeds it."""
        self.losses = 0
        self.fault: BaseException | None = None
        self.is_ready = threading.Event()
        """Set when nothing that is written from now on is missed."""
        self.is_given_up = False
        """Whether it is to end even with something under way."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self.start, self.end = self._thread.start, self._ending.set

    @property
    def stands_at(self) -> str:
        """In which line it is at this moment."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return " < ".join(line.strip().replace("\n    ", ": ") for line in reversed(traceback.format_stack(frame)))

    @property
    def is_started(self) -> bool:
        return self._thread.ident is not None

    def stop(self) -> None:
        self.end()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    def _run(self) -> None:
        try:
            while not self._is_done():
                try:
                    with type(self).connects(self.place) as self.connection:
                        self._work()
                except BaseException as error:
                    if not self.is_lost(error):
                        raise
                    self.losses += 1
                    time.sleep(0.1)
        except BaseException as fault:
            self.fault = fault

    def _is_done(self) -> bool:
        return self._ending.is_set()

    @abstractmethod
    def _work(self) -> None:
        """What it does with one connection, until it is to end."""


class Writer(Client):
    """One that appends; its payloads follow from their markers."""

    together: ClassVar[int] = 1
    """How many events it sends at once."""
    pause_s: float = 0.005
    """Between them."""

    def __init__(self, place: Place, book: Book) -> None:
        super().__init__(place)
        self.book = book
        self.acknowledged: dict[str, float] = {}
        """When each was sent, by marker, in the order in which they were acknowledged."""
        self.under_way: list[str] = []
        """Those that were sent, and not acknowledged yet."""
        self.told: dict[str, int] = {}
        """The numbers that came with acknowledgements, where the protocol has them."""
        self.latencies: list[tuple[float, float]] = []
        """When, and how long it took."""

    def text(self, marker: str) -> str:
        """The event's payload; the marker is in it."""
        return self.book.text(marker)

    def payload(self, marker: str) -> bytes:
        """The same as JSON."""
        return json.dumps(self.text(marker)).encode()

    def _is_done(self) -> bool:
        return self._ending.is_set() and (self.is_given_up or not self.under_way)

    def _work(self) -> None:
        while not self._is_done():
            if not self.under_way:
                first = len(self.acknowledged)
                self.under_way = [f"good:{self.name}:{number}" for number in range(first, first + self.together)]
            began = time.monotonic()
            while not self._append_all(self.under_way):
                time.sleep(0.1)
            self.acknowledged.update(dict.fromkeys(self.under_way, began))
            self.under_way = []
            self.latencies.append((began, time.monotonic() - began))
            self._ending.wait(self.pause_s)

    def _append_all(self, markers: list[str]) -> bool:
        """Whether they are acknowledged; the server may be too busy."""
        return self._append(*markers) is not False

    def _append(self, marker: str) -> object:
        """The same for one; False: the server is too busy."""
        raise NotImplementedError


class Reader(Client):
    """One that follows the log, and writes down what it saw."""

    writers: ClassVar[frozenset[str] | None] = None
    """Whose events it sees; all if None."""
    may_repeat: ClassVar[bool] = False

    def __init__(self, place: Place, book: Book) -> None:
        super().__init__(place)
        self.book = book
        self.page = Page(f"the {self.name} reader", may_repeat=self.may_repeat)
        self.after = 0
        """The newest number that it has seen: there it goes on."""
        self.seen_at: dict[str, float] = {}
        """When it saw which marker first."""

    def note(self, number: int, text: bytes) -> None:
        self.after = max(self.after, number)
        self.book.note(self.page, number, text)
        self.seen_at.setdefault(self.book.markers.get(number, ""), time.monotonic())

    def sees(self, writer: Writer) -> bool:
        """Whether the events of that writer are for it."""
        return self.log == writer.log and (self.writers is None or writer.name in self.writers)
