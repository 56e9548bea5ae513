"""The kinds of event log that the contract is run on. A new one is a `Bench` and one line in `KINDS`.

A bench holds a store with logs of one kind. Its logs are used as `EventLog`; what makes, changes and deletes logs goes
by the bench, because the protocol of a single log has no word for it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from headwater.core import EventLog, LogSettings, LogStore
from headwater.storage.memory import MemoryStore

Clock = Callable[[], int]


class Bench(Protocol):
    """Logs of one kind, and the store behind them."""

    is_local: bool
    """Whether the logs are `LocalLog`s, in this process."""
    is_durable: bool
    """Whether `reopen` brings the logs back from their storage."""
    store: LogStore
    """Where the logs really are."""

    def __init__(self, directory: Path, clock: Clock) -> None: ...

    def create(self, name: str, settings: LogSettings | None = None) -> EventLog:
        """The log of that name, made if there is none."""

    def log(self, name: str) -> EventLog:
        """The log of that name, which is there."""

    def reopen(self) -> None:
        """Close the store in order and open it again; logs got before are not to be used any more."""

    def close(self) -> None:
        """Give everything back."""


class MemoryBench:
    """The reference."""

    is_local = True
    is_durable = False

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.store: Any = MemoryStore(clock)

    def create(self, name: str, settings: LogSettings | None = None) -> EventLog:
        return self.store.create(name, settings)

    def log(self, name: str) -> EventLog:
        return self.store.open(name)

    def reopen(self) -> None:
        raise NotImplementedError("memory forgets")

    def close(self) -> None:
        self.store.close()


class SegmentsBench(MemoryBench):
    """The embedded engine: segments in a directory."""

    is_durable = True

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.directory, self._clock = directory, clock
        self.store = self._open()

    def reopen(self) -> None:
        self.store.close()
        self.store = self._open()

    def _open(self) -> Any:
        from headwater.storage import Engine

        return Engine(self.directory, clock=self._clock)


class PostgresBench(SegmentsBench):
    """The engine over a home in PostgreSQL. It is opened again with an empty directory: all is in the home."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        from tests.homes.postgres_server import fresh_home

        self._url = fresh_home()
        super().__init__(directory, clock)

    def reopen(self) -> None:
        self.close()
        self.directory = self.directory.with_name(f"{self.directory.name}-again")
        self.store = self._open()

    def close(self) -> None:
        super().close()
        self._home.close()

    def _open(self) -> Any:
        from headwater.homes.postgres.home import PostgresHome
        from headwater.storage import Engine

        self._home = PostgresHome(self._url)
        try:
            self._home.begin_term()
            return Engine(self.directory, clock=self._clock, home=self._home)
        except BaseException:  # else the next tests fail for want of connections
            self._home.close()
            raise


class ReplicaBench(PostgresBench):
    """A replica over a home in PostgreSQL: what is appended at the primary is read there."""

    is_local = False
    is_durable = False

    def __init__(self, directory: Path, clock: Clock) -> None:
        from .followed import ReplicaStore

        super().__init__(directory, clock)
        self._replica = ReplicaStore(
            self._url, directory.with_name(f"{directory.name}-replica"), clock, self.store.state.flush
        )

    def create(self, name: str, settings: LogSettings | None = None) -> EventLog:
        return self._replica.log(self.store.create(name, settings))

    def log(self, name: str) -> EventLog:
        return self._replica.log(self.store.open(name))

    def reopen(self) -> None:
        raise NotImplementedError("it is the primary's that is opened again")

    def close(self) -> None:
        self._replica.close()
        super().close()


class ClientBench(MemoryBench):
    """The HTTP client against a server on loopback, over a store in memory."""

    is_local = False

    def __init__(self, directory: Path, clock: Clock) -> None:
        from headwater.client import connect

        from .serving import Serving

        super().__init__(directory, clock)
        self._serving = Serving(self.store)
        self._client = connect(self._serving.url)

    def create(self, name: str, settings: LogSettings | None = None) -> EventLog:
        self.store.create(name, settings)
        return self.log(name)

    def log(self, name: str) -> EventLog:
        return self._client.log(name)

    def close(self) -> None:
        self._client.close()
        self._serving.close()
        super().close()


class AsyncClientBench(ClientBench):
    """The HTTP client for asyncio."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        from headwater.client import aio

        from .awaited import LoopThread

        super().__init__(directory, clock)
        self._loop = LoopThread()
        self._awaited = self._loop.wait(_made(lambda: aio.connect(self._serving.url)))

    def log(self, name: str) -> EventLog:
        from .awaited import AwaitedLog

        return AwaitedLog(self._awaited.log(name), self._loop.wait)  # type: ignore[return-value]

    def close(self) -> None:
        self._loop.wait(self._awaited.close())
        self._loop.close()
        super().close()


async def _made(make: Callable[[], Any]) -> Any:
    """On the event loop, where what is made belongs."""
    return make()


KINDS: dict[str, tuple[type[MemoryBench], str]] = {
    "memory": (MemoryBench, "headwater.storage.memory"),
    "segments": (SegmentsBench, "headwater.storage.engine"),
    "postgres": (PostgresBench, "headwater.homes.postgres.home"),
    "replica": (ReplicaBench, "headwater.homes.postgres.home"),
    "client": (ClientBench, "headwater.client.sync"),
    "client_aio": (AsyncClientBench, "headwater.client.aio"),
}
"""By name: the bench, and the module without which there is no such kind."""


def kinds(*, durable: bool | None = None, local: bool | None = None) -> list[str]:
    """The kinds that are there, of that sort."""
    return [
        name
        for name, (bench, module) in KINDS.items()
        if find_spec(module) is not None and durable in (None, bench.is_durable) and local in (None, bench.is_local)
    ]
