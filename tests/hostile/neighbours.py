"""Well-behaved clients of each protocol on one log: who write remember what was acknowledged, who read what they saw.

Each event carries a marker, `good:WRITER:NUMBER`. A writer sends one event after the other and repeats one that was
refused because the server is busy, under the same id; any other refusal is a fault. A lost connection is a fault too,
unless a kind says that it is to be expected (`is_lost`): then it connects anew, and goes on where it was.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from base64 import b64encode
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple
from urllib.request import Request, urlopen

from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as connect_websocket

from headwater.amqp.client import Client

LOG = "orders"
RESOURCE = "/good/resource"
TIMEOUT_S = 300.0
_MARKER = re.compile(rb"good:(\w+):(\d+)")


class Place(NamedTuple):
    """Where the server is, and who asks."""

    http: str
    amqp: str
    flight: str
    user: str
    password: str

    @property
    def authorization(self) -> str:
        """Of HTTP."""
        return f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"

    def amqp_client(self, **options: Any) -> Client:
        """A connection."""
        return Client(self.amqp.replace("://", f"://{self.user}:{self.password}@"), **options)

    def websocket(self, log: str, **options: Any) -> AbstractContextManager[ClientConnection]:
        """A connection to a log's FutoIn endpoint, as the context manager opens it."""
        url = f"ws{self.http.removeprefix('http')}/futoin/{log}"
        headers = {"authorization": self.authorization}
        return connect_websocket(url, additional_headers=headers, compression=None, **options)


class Neighbour(ABC):
    """One client, on a thread of its own."""

    name: ClassVar[str]
    log: ClassVar[str] = LOG

    def __init__(self, place: Place) -> None:
        self.place = place
        self.losses = 0
        """How often it lost its connection."""
        self.latencies: list[tuple[float, float]] = []
        """When, and how long it took."""
        self.fault: BaseException | None = None
        self.is_ready = threading.Event()
        """Set when nothing that is written from now on is missed."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    @property
    def stands_at(self) -> str:
        """In which line it is at this moment."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return " < ".join(line.strip().replace("\n    ", ": ") for line in reversed(traceback.format_stack(frame)))

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def is_started(self) -> bool:
        """Whether it began."""
        return self._thread.ident is not None

    def end(self) -> None:
        """End soon."""
        self._ending.set()

    def stop(self) -> None:
        """End, and wait for it."""
        self.end()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    def is_lost(self, error: BaseException) -> bool:
        """Whether it is to connect anew after that."""
        return False

    def _run(self) -> None:
        try:
            while not self._is_done():
                self._live_once()
        except BaseException as fault:
            self.fault = fault

    def _live_once(self) -> None:
        try:
            self._live()
        except BaseException as error:
            if not self.is_lost(error):
                raise
            self.losses += 1
            time.sleep(0.1)

    def _is_done(self) -> bool:
        return self._ending.is_set()

    @abstractmethod
    def _live(self) -> None:
        """What it does until it is to end."""


class Writer(Neighbour):
    """One that appends."""

    together: ClassVar[int] = 1
    """How many events it sends at once."""
    pause_s: ClassVar[float] = 0.02
    """Between them: neighbours are no load."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.acknowledged: dict[str, float] = {}
        """When each was sent, by marker, in the order in which they were acknowledged."""
        self.under_way: list[str] = []
        """Those that were sent, and not acknowledged yet."""
        self.told: dict[str, int] = {}
        """The numbers that came with acknowledgements, where the protocol has them."""

    def text(self, marker: str) -> str:
        """The event's payload; the marker is in it."""
        return marker

    def payload(self, marker: str) -> bytes:
        """The same as JSON."""
        return json.dumps(self.text(marker)).encode()

    def _is_done(self) -> bool:
        return super()._is_done() and not self.under_way

    def _live(self) -> None:
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
        """Like `_append`, for all that is sent at once."""
        return self._append(*markers)

    def _append(self, marker: str) -> bool:
        """Whether it is acknowledged; the server may be too busy."""
        raise NotImplementedError


class Reader(Neighbour):
    """One that follows the log."""

    writers: ClassVar[frozenset[str] | None] = None
    """Whose events it sees; all if None."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.seen: list[str] = []
        self.seen_at: dict[str, float] = {}
        self.after = 0
        """The newest number that it has seen: there it goes on."""

    def note(self, number: int, text: bytes) -> None:
        """An event was received."""
        self.after = max(self.after, number)
        found = _MARKER.search(text)
        if found is not None:
            marker = found[0].decode()
            self.seen.append(marker)
            self.seen_at.setdefault(marker, time.monotonic())


def ask(place: Place, method: str, path: str, body: object = None, media_type: str = "application/json") -> bytes:
    """The answer to one HTTP request, which must succeed."""
    headers = {"content-type": media_type, "authorization": place.authorization}
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(f"{place.http}{path}", data, headers, method=method), timeout=TIMEOUT_S) as answer:
        content: bytes = answer.read()
    return content
