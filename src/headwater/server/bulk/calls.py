"""The server's answers to its bulk process: users, locations of logs, and everything that only the server may do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any, NamedTuple, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import msgspec

from ...core.access import Credentials, Guard, Right, User
from ...core.actor import act_as, acting, as_now
from ...core.errors import EventLogError, NotPrimary, StorageUnavailable
from ...core.extent import Extent
from ...core.log import LogInfo
from ...core.loop.traffic import Traffic
from ...core.mark import Committed, check_writer
from ...core.readers import Reader, Readers, Waiting
from ...core.store import LogStore
from ...core.streams import NOBODY
from ...flight import wire
from ...flight.server.backend import Login, LogPlace
from ...flight.wire import ActionShape, Answer, Body
from ...formats.arrow.lazy import pa
from ...storage.log import StoredLog
from ...storage.staging.commit import commit_staged, discard_staged
from ...storage.staging.owners import release
from ..process.allocators import Keeping
from .callers import BulkCallers
from .link import Call
from .streams import About
from .writer_ownership import check_own, owner_for

P = ParamSpec("P")
T = TypeVar("T")


class BulkCalls:
    """The calls by name, for `link.Answering`."""

    def __init__(
        self,
        store: LogStore,
        guard: Guard,
        readers: Readers | None = None,
        stale: Callable[[str | None], str | None] = lambda log: None,
    ) -> None:
        """`readers` gets the streams that last for a while. `stale` returns why nothing, or nothing of the given log,
        may currently be read. While there is a reason, each call that begins an operation raises StorageUnavailable.
        """
        self._stale = stale
        self._store, self._guard, self._readers = store, guard, readers or Readers()
        self._streams: dict[int, tuple[Reader, Callable[[], None]]] = {}
        """Those streams, by their numbers in the bulk process, each with a callable that forgets it."""
        self._telling = asyncio.Lock()
        self.ask: Callable[..., None] = lambda *_: None
        """Sends a message to the bulk process, if there is one."""
        self.callers = BulkCallers()
        self.traffic = Traffic()
        """Events that were appended, and events that were sent to readers."""
        self.ended = 0
        """Connections that the bulk process closed because their peers sent more than the process accepted."""
        self._threads = {kind: ThreadPoolExecutor(kind.value, f"bulk-{kind.name.lower()}") for kind in Work}
        self._opened_logs: WeakValueDictionary[str, StoredLog] = WeakValueDictionary()
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """By log and writer. A repeated commit waits here, without using a thread."""

    def table(self) -> Mapping[str, Call]:
        """Every call that the bulk process may make."""
        names = ("authenticate", "user", "authorize", "place", "check_position", "append", "act", "sent", "damaged")
        return {name: getattr(self, name) for name in (*names, "connections_ended")}

    def close(self) -> None:
        """Start nothing new."""
        for pool in self._threads.values():
            pool.shutdown(wait=False, cancel_futures=True)

    # Users

    async def authenticate(self, name: str, secret: str | None, peer: str) -> Login:
        """The user behind credentials; `secret` is None if there are none. Raises Unauthenticated."""
        self._check_fresh()
        before = self._guard.seal(
            name, is_login=True
        )  # after a password changed during the check, the login must not remain valid
        user = await self._guard.authenticate(None if secret is None else Credentials(name, secret), peer)
        self.callers.seen(user.name, peer)
        return Login(user, before if name else self._guard.seal(user.name, is_login=True))

    async def user(self, name: str, seal: str, peer: str) -> User:
        """The user of that name in the current accounts.

        Raises Unauthenticated if it no longer exists, or its password or tokens have changed since the login.
        """
        self._check_fresh()
        user = self._guard.trusted(name, peer)
        if self._guard.seal(user.name) != seal:
            raise self._guard.refused(name, peer)
        self.callers.seen(user.name, peer)
        return user

    async def authorize(self, name: str, right: str, log: str) -> None:
        """See Guard. Called only if a user seemed to lack the right."""
        self._guard.authorize(self._guard.trusted(name, ""), Right(right), log)

    # Logs

    async def place(self, log: str) -> LogPlace:
        """The extent and location of a log. Raises LogNotFound, StorageCorrupted."""
        stored = await self._opened(log)
        self._check_fresh(log)
        extent = Extent(stored.head(), stored.first_retained, stored.meta.incarnation)
        may_append = not stored.is_following
        return LogPlace(extent, stored.settings, str(stored.directory), may_append, stored.distrusted)

    async def check_position(self, log: str, position: int) -> None:
        """See LocalLog."""
        stored = await self._opened(log)
        self._check_fresh(log)
        stored.check_position(position)

    async def append(self, path: str, command: bytes) -> wire.Appended:
        """Append the events of the batch in that file, in one append. Raises the same errors as EventLog.append, and
        InvalidQuery.
        """
        given = wire.decode(wire.AppendCommand, command, "append")
        stored = await self._opened(given.log)
        appended = await self._blocking(Work.APPEND, _append, stored, path, given)
        if appended.last and not appended.was_stored:
            self.traffic.events_in += appended.last - appended.first + 1
        return appended

    async def sent(self, number: int, events: int, is_end: bool, about: list[Any] | None) -> None:
        """Record events that the stream with that number has sent to a reader. The first call for a stream contains
        `about`.
        """
        self.traffic.events_out += events
        async with self._telling:  # in the order of the calls, though a log may have to be opened
            if about is not None and number not in self._streams:
                await self._begun(number, msgspec.convert(about, About))
            if (found := self._streams.get(number)) is None:
                return
            reader, forget = found
            reader.sent(None, events)
            reader.waits(Waiting.READING)
            if is_end:
                del self._streams[number]
                forget()

    async def _begun(self, number: int, about: About) -> None:
        try:
            log = await self._opened(about.log)
        except EventLogError:  # deleted in the meantime, so the stream ends
            return
        reader = Reader(
            "flight",
            log,
            lambda reason: self.ask("end", number, reason),
            user=about.user,
            peer=(about.peer, None),
            wants=about.wants,
            partition=about.partition,
            position=None,
        )
        self._streams[number] = reader, self._readers.add(reader)

    async def damaged(self, log: str, path: str) -> None:
        """A read found damage in that file. The server checks the file itself, so that metrics and events report the
        damage.
        """
        stored = await self._opened(log)
        await asyncio.to_thread(stored.look_for_damage, path)

    async def connections_ended(self, count: int) -> None:
        """Count connections that were closed because their peers sent more than the process accepted."""
        self.ended += count

    def forget_streams(self) -> None:
        """Forget the streams of a bulk process that has ended."""
        for _, forget in self._streams.values():
            forget()
        self._streams.clear()

    async def act(self, user: str, name: str, body: bytes) -> bytes:
        """Perform the action for that user, with current rights. Returns the answer.

        Raises InvalidInput, Forbidden, LogNotFound, and the errors of its handler.
        """
        self._check_fresh()
        shape = wire.ACTIONS[name]
        given = wire.decode(shape.body, body or b"{}", name)
        caller = self._guard.trusted(user, "")
        act_as(caller.name)
        if shape.right is None:
            names = await self._blocking(Work.ASK, self._store.names)
            self._check_fresh()
            return wire.encode(wire.LogNames([name for name in names if caller.may(Right.READ, name)]))
        self._guard.authorize(caller, shape.right, given.log)
        self._check_fresh(given.log)
        if isinstance(given, wire.WriterBody):
            check_writer(given.writer)  # no log is opened for an invalid name
        handler, work, takes_turns = HANDLERS[name]
        target = self._store if work is Work.OPEN else await self._opened(given.log)
        if shape.right is Right.APPEND and isinstance(target, StoredLog) and target.is_following:
            raise NotPrimary(
                given.log
            )  # a replica must not even report a missing stage, because stages are kept on the primary
        if work is None:
            return wire.encode(handler(target, given))
        if not takes_turns:
            answer = await self._blocking(work, handler, target, given)
            if shape.right is Right.READ:
                self._check_fresh(given.log)
            return wire.encode(answer)
        assert isinstance(target, StoredLog), "only writers of a log take turns"
        async with self._turn(given.log, given.writer):
            owner = await self._blocking(Work.ASK, owner_for, target.directory, caller, given)
            check_own(owner, caller, given.log, self._guard.authorize)
            answer = await self._blocking(work, handler, target, given)
            if isinstance(answer, Committed) and not answer.was_applied:
                self.traffic.events_in += answer.events
            if target.writer(given.writer) is None:
                await self._blocking(Work.ASK, release, target.directory, given.writer)
            return wire.encode(answer)

    def _check_fresh(self, log: str | None = None) -> None:
        """Raises NotPrimary, StorageUnavailable."""
        if self._store.has_lapsed():
            raise NotPrimary(log or "")
        if (reason := self._stale(log)) is not None:
            raise StorageUnavailable(reason=reason)

    def _turn(self, log: str, writer: str) -> asyncio.Lock:
        return self._turns.setdefault((log, writer), asyncio.Lock())

    async def _opened(self, log: str) -> StoredLog:
        stored = self._opened_logs.get(log)
        if stored is None or stored.is_closed:
            opened = await self._blocking(Work.OPEN, self._store.open, log)
            assert isinstance(opened, StoredLog), "the bulk plane runs only if logs are on disk"
            stored = self._opened_logs[log] = opened
        return stored

    async def _blocking(self, kind: Work, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads[kind], as_now(work, *arguments, **named))


def _append(log: StoredLog, path: str, command: wire.AppendCommand) -> wire.Appended:
    columns = log.columns_of(_batch_at(path))
    condition = wire.condition_of(command.condition)
    if command.on_duplicate == "fail":
        return wire.Appended(*log.append_columns(columns, condition, partition=command.partition, is_bulk=True))
    result, skipped = log.append_new(columns, condition, partition=command.partition, is_bulk=True)
    return wire.Appended(0, 0, skipped=skipped) if result is None else wire.Appended(*result, skipped=skipped)


def _batch_at(path: str) -> pa.RecordBatch:
    try:
        file = pa.memory_map(path)
    except OSError as error:  # the process that holds it was killed, so no caller waits for the answer
        raise StorageUnavailable(f"cannot read the batch; nothing was appended: {error}") from None
    with file:
        return pa.ipc.open_stream(file).read_next_batch()


KEEPING = Keeping()
"""Runs large commits; there is one for the whole process."""


class Work(Enum):
    """Kinds of blocking calls. Each kind has its own threads, so that slow calls do not delay others."""

    OPEN = 2
    """For logs that are not open yet, because the first opening after a crash may take a long time."""
    ASK = 8
    APPEND = 16
    COMMIT = 4
    """These may take minutes."""


class Handling(NamedTuple):
    """How an action is performed."""

    handler: Callable[[Any, Any], object]
    """Maps the log named in the body (all logs, if the work is to open one) and the body to the answer; body and answer
    are described in `flight.wire.ACTIONS`. Raises the errors of the log. """
    work: Work | None = Work.ASK
    """None: it does not block."""
    takes_turns: bool = False
    """Whether calls for the same log and writer run one at a time."""


def _on_log(
    shape: ActionShape[Body, Answer],
    handler: Callable[[StoredLog, Body], Answer],
    work: Work | None = Work.ASK,
    *,
    takes_turns: bool = False,
) -> tuple[str, Handling]:
    return shape.name, Handling(handler, work, takes_turns)


def _create_log(store: LogStore, body: wire.CreateBody) -> LogInfo:
    return store.create(body.log, wire.settings_of(body.settings)).info()


def _unregister_consumer(log: StoredLog, body: wire.UnregisterBody) -> wire.Nothing:
    log.unregister_consumer(body.owner, body.component, drops_at_most=body.drops_at_most)
    return wire.Nothing()


def _report_position(log: StoredLog, body: wire.ReportBody) -> wire.Nothing:
    log.streams.tell(acting() or NOBODY, body.stream, body.position)
    return wire.Nothing()


def _commit(log: StoredLog, body: wire.CommitBody) -> Committed:
    return commit_staged(
        log,
        log.directory,
        body.writer,
        body.batch,
        body.stages,
        partition=body.partition,
        condition=wire.condition_of(body.condition),
        on_duplicate=body.on_duplicate,
        around_segments=KEEPING,
    )


def _discard(log: StoredLog, body: wire.DiscardBody) -> wire.Nothing:
    discard_staged(log, log.directory, body.writer, body.batch, gives_up=body.gives_up)
    return wire.Nothing()


def _forget_writer(log: StoredLog, body: wire.WriterBody) -> wire.Nothing:
    log.forget_writer(body.writer)
    return wire.Nothing()


HANDLERS: dict[str, Handling] = dict(
    (
        (wire.CREATE_LOG.name, Handling(_create_log, Work.OPEN)),
        _on_log(wire.INFO, lambda log, _: log.info()),
        _on_log(
            wire.SEQUENCE_NUMBER_AT, lambda log, body: wire.SequenceNumber(log.sequence_number_at(body.recorded_at))
        ),
        _on_log(wire.TRIM, lambda log, body: wire.Trimmed(log.trim(body.below))),
        _on_log(wire.CONSUMERS, lambda log, _: wire.Consumers(log.consumers()), None),
        _on_log(wire.CONSUMER, lambda log, body: wire.OneConsumer(log.consumer(body.owner, body.component)), None),
        _on_log(
            wire.REGISTER_CONSUMER,
            lambda log, body: log.register_consumer(
                body.owner, body.component, after=body.after, drops_at_most=body.drops_at_most
            ),
        ),
        _on_log(
            wire.ACKNOWLEDGE,
            lambda log, body: log.acknowledge(body.owner, body.component, body.sequence_number, epoch=body.epoch),
        ),
        _on_log(wire.UNREGISTER_CONSUMER, _unregister_consumer),
        _on_log(wire.REPORT_POSITION, _report_position, None),
        _on_log(wire.WRITER, lambda log, body: wire.OneWriter(log.writer(body.writer)), None),
        _on_log(wire.COMMIT, _commit, Work.COMMIT, takes_turns=True),
        _on_log(wire.DISCARD, _discard, takes_turns=True),
        _on_log(wire.FORGET_WRITER, _forget_writer, takes_turns=True),
    )
)
"""Every action on a log that the bulk process does not perform itself."""
