"""What the server answers its bulk process: who a user is, where a log lies, and every write, which only it may do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import msgspec
import pyarrow as pa

from ...core.access import Credentials, Guard, Right, User
from ...core.condition import AppendCondition
from ...core.consumer import Consumer
from ...core.errors import StorageUnavailable
from ...core.extent import Extent
from ...core.log import LogInfo
from ...core.mark import Committed, WriterState
from ...core.settings import LogSettings
from ...core.store import LogStore
from ...flight.backend import Login, LogPlace
from ...flight.wire import Appended, OnDuplicate
from ...formats.arrow_events import columns_of
from ...storage.committing import commit_staged, discard_staged
from ...storage.log import StoredLog
from .link import Call

P = ParamSpec("P")
T = TypeVar("T")


class Work(Enum):
    """Kinds of calls that block. Each has threads of its own, so that slow ones hold up no others."""

    OPEN = 2
    """Logs that are not open yet: the first opening after a crash may take long."""
    ASK = 8
    APPEND = 16
    COMMIT = 4
    """These may take minutes."""


class BulkCalls:
    """The calls by name: what `link.Answering` is given."""

    def __init__(self, store: LogStore, guard: Guard) -> None:
        self._store, self._guard = store, guard
        self._threads = {kind: ThreadPoolExecutor(kind.value, f"bulk-{kind.name.lower()}") for kind in Work}
        self._opened_logs: WeakValueDictionary[str, StoredLog] = WeakValueDictionary()
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """Of log and writer: a commit that is asked for again and again waits here, and takes no thread meanwhile."""

    def table(self) -> Mapping[str, Call]:
        """Every call that the bulk process may make."""
        return {
            name: getattr(self, name)
            for name in (
                "authenticate", "user", "authorize", "logs", "info", "place", "sequence_number_at", "check_position",
                "append", "commit", "discard", "writer", "consumers", "register_consumer", "acknowledge",
                "unregister_consumer", "create_log", "trim",
            )
        }  # fmt: skip

    def close(self) -> None:
        """Begin nothing any more."""
        for pool in self._threads.values():
            pool.shutdown(wait=False, cancel_futures=True)

    # Who

    async def authenticate(self, name: str, secret: str | None, peer: str) -> Login:
        """The user behind credentials; `secret` None = there are none. Raises Unauthenticated."""
        before = self._guard.seal(name)  # a password that is changed while it is checked opens nothing that stays
        user = await self._guard.authenticate(None if secret is None else Credentials(name, secret), peer)
        return Login(user, before if name else self._guard.seal(user.name))

    async def user(self, name: str, seal: str, peer: str) -> User:
        """The user of that name as the accounts are now.

        Raises Unauthenticated: there is none any more, or another password, or other tokens, than at the login.
        """
        user = self._guard.trusted(name, peer)
        if self._guard.seal(user.name) != seal:
            raise self._guard.refused(name, peer)
        return user

    async def authorize(self, name: str, right: str, log: str) -> None:
        """See Guard. Asked only where a user seemed to lack the right."""
        self._guard.authorize(self._guard.trusted(name, ""), Right(right), log)

    # Logs

    async def logs(self) -> list[str]:
        """See LogStore.names."""
        return await self._blocking(Work.ASK, self._store.names)

    async def info(self, log: str) -> LogInfo:
        """See EventLog.info."""
        stored = await self._opened(log)
        return await self._blocking(Work.ASK, stored.info)

    async def place(self, log: str) -> LogPlace:
        """How far it goes, and where it lies. Raises LogNotFound, StorageCorrupted."""
        stored = await self._opened(log)
        extent = Extent(stored.head(), stored.first_retained, stored.meta.incarnation)
        return LogPlace(extent, stored.settings, str(stored.directory))

    async def sequence_number_at(self, log: str, recorded_at: int) -> int:
        """See LocalLog.sequence_number_at."""
        stored = await self._opened(log)
        return await self._blocking(Work.ASK, stored.sequence_number_at, recorded_at)

    async def create_log(self, log: str, settings: dict[str, Any] | None) -> LogInfo:
        """See LogStore.create. Raises LogExists, InvalidLogName, InvalidSettings."""
        wanted = None if settings is None else LogSettings(**settings)
        return await self._blocking(Work.OPEN, lambda: self._store.create(log, wanted).info())

    async def trim(self, log: str, below: int) -> int:
        """See EventLog.trim."""
        stored = await self._opened(log)
        return await self._blocking(Work.ASK, stored.trim, below)

    async def check_position(self, log: str, position: int) -> None:
        """See LocalLog."""
        (await self._opened(log)).check_position(position)

    # Writes

    async def append(
        self, log: str, path: str, partition: int | None, condition: Any, on_duplicate: OnDuplicate
    ) -> Appended:
        """Append the events of the batch in that file, in one append. Raises as EventLog.append."""
        stored = await self._opened(log)
        wanted = _condition(condition)
        return await self._blocking(Work.APPEND, _append, stored, path, partition, wanted, on_duplicate)

    async def commit(
        self,
        log: str,
        writer: str,
        batch: int,
        stages: list[str],
        partition: int | None,
        condition: Any,
        on_duplicate: OnDuplicate,
    ) -> Committed:
        """See storage.committing."""
        stored = await self._opened(log)
        wanted = _condition(condition)
        async with self._turn(log, writer):
            return await self._blocking(
                Work.COMMIT,
                lambda: commit_staged(
                    stored, stored.directory, writer, batch, stages,
                    partition=partition, condition=wanted, on_duplicate=on_duplicate,
                )
            )  # fmt: skip

    async def discard(self, log: str, writer: str, batch: int, gives_up: bool) -> None:
        """See storage.committing."""
        stored = await self._opened(log)
        async with self._turn(log, writer):
            discard = partial(discard_staged, stored, stored.directory, writer, batch, gives_up=gives_up)
            await self._blocking(Work.ASK, discard)

    async def writer(self, log: str, writer: str) -> WriterState | None:
        """See LocalLog."""
        return (await self._opened(log)).writer(writer)

    # Consumers

    async def consumers(self, log: str) -> list[Consumer]:
        """See EventLog."""
        return (await self._opened(log)).consumers()

    async def register_consumer(self, log: str, owner: str, component: str, after: int | None) -> Consumer:
        """See EventLog."""
        stored = await self._opened(log)
        return await self._blocking(Work.ASK, lambda: stored.register_consumer(owner, component, after=after))

    async def acknowledge(
        self, log: str, owner: str, component: str, sequence_number: int, epoch: int | None
    ) -> Consumer:
        """See EventLog."""
        stored = await self._opened(log)
        return await self._blocking(
            Work.ASK, lambda: stored.acknowledge(owner, component, sequence_number, epoch=epoch)
        )

    async def unregister_consumer(self, log: str, owner: str, component: str) -> None:
        """See EventLog."""
        stored = await self._opened(log)
        await self._blocking(Work.ASK, stored.unregister_consumer, owner, component)

    def _turn(self, log: str, writer: str) -> asyncio.Lock:
        return self._turns.setdefault((log, writer), asyncio.Lock())

    async def _opened(self, log: str) -> StoredLog:
        stored = self._opened_logs.get(log)
        if stored is None or stored.is_closed:
            opened = await self._blocking(Work.OPEN, self._store.open, log)
            assert isinstance(opened, StoredLog), "there is a bulk plane only where logs are on disk"
            stored = self._opened_logs[log] = opened
        return stored

    async def _blocking(self, kind: Work, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads[kind], partial(work, *arguments, **named))


def _append(
    log: StoredLog, path: str, partition: int | None, condition: AppendCondition | None, on_duplicate: OnDuplicate
) -> Appended:
    columns = columns_of(_batch_at(path), log.settings)
    if on_duplicate == "fail":
        return Appended(*log.append_columns(columns, condition, partition=partition))
    result, skipped = log.append_new(columns, condition, partition=partition)
    return Appended(0, 0, skipped=skipped) if result is None else Appended(*result, skipped=skipped)


def _batch_at(path: str) -> pa.RecordBatch:
    try:
        file = pa.memory_map(path)
    except OSError as error:  # the process that holds it was killed, and nobody waits for the answer
        raise StorageUnavailable(f"the batch cannot be read, nothing was appended: {error}") from None
    with file:
        return pa.ipc.open_stream(file).read_next_batch()


def _condition(given: Any) -> AppendCondition | None:
    """The condition, as MessagePack had it."""
    return None if given is None else msgspec.convert(given, AppendCondition)
