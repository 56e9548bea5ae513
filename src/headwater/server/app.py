"""The server's life cycle. Connects the logs, the guard and the front ends.

Start: bind, answer health checks, open the logs, admit requests. Stop (SIGTERM or SIGINT): refuse new requests, let
running ones finish, end subscriptions, close the logs and exit. A second signal ends the process at once; acknowledged
events are on disk even then. SIGHUP: see `hangups`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, closing
from functools import partial
from typing import Protocol

from .. import __version__, dcb
from ..amqp.attach import attach
from ..amqp.container import Container
from ..amqp.management.node import ManagementNode
from ..amqp.redirect import Elsewhere
from ..amqp.server import AmqpReception, AmqpServer
from ..amqp.streams.followers import Following
from ..amqp.streams.workers import GroupWorkers
from ..cne import server as cne
from ..console import server as console
from ..console.host import ConsoleHost
from ..console.live import Live
from ..core.errors import DiskFull, NotPrimary, OutcomeUnknown
from ..core.loop.gil_yield import GilYield
from ..core.loop.memory import MemoryAccount
from ..core.loop.scheduler import FairScheduler, LoopActivity
from ..core.readers import Readers
from ..core.shared_bytes import SharedBytes
from ..core.store import LogStore
from ..core.watch.bus import Bus
from ..core.watch.notification_types import NotificationType
from ..core.watch.threads import Threads
from ..formats.settings.declaration import InvalidConfiguration
from ..futoin import server as futoin
from ..homes.home_secret import HomeSecret, ensure_secret
from ..homes.postgres.statements import HomeUnavailable
from ..http import Application, Receive, Scope, Send
from ..management import server as management_http
from ..management.operations import Management
from ..speedups import BUILD
from ..storage.append.append_memory import never_fits
from ..storage.disk.locks import LockLost
from ..storage.frames.encoding import EncodedFrame
from ..storage.home.port import HomeMoved, HomeWentBack
from ..storage.home.replicated_log import CopyOutlived
from .config.memory_shares import MemoryShares
from .config.settings import REMOVED, Config
from .entities.home_servers import HomeServers
from .entities.registration import serve_management
from .entities.server import ServerEntity
from .front.forwarding.forwarder import Forwarder
from .front.forwarding.sender import Senders
from .front.gate import Gate, State
from .front.health import HEALTH_PATHS, METRICS, Health, ServerRole
from .front.meter import RequestMeter
from .front.root_page import RootPage
from .front.web_guard import ANY_ORIGIN, WebGuard
from .httpd.admission import Admission
from .httpd.server import HttpServer
from .monitoring import room_metrics
from .monitoring.console_samples import Lags, Measuring
from .monitoring.loop_watchdog import LoopWatchdog
from .monitoring.metrics import Metrics, ServerCollector
from .monitoring.notifications import Notifications
from .monitoring.protocol_traffic import protocol_traffic
from .monitoring.tracing import open_spans
from .process.allocators import give_memory_back
from .process.hangups import Hangups
from .process.log_lines import fields
from .process.memory_return import MemoryReturn
from .process.service_manager import ADDRESS_VARIABLE, ServiceManager
from .process.sockets import is_loopback
from .replicas import frame_push
from .replicas.amqp import ReplicaAmqp
from .replicas.frame_listener import Listening
from .replicas.frame_push import PushedFrames
from .replicas.membership import Membership
from .replicas.origin_header import Origins
from .replicas.origin_reception import OriginReception
from .replicas.replica import Replica, lacks_log, marked, only_reads
from .replicas.waiting_for_home import WaitingForHome
from .startup.configured_logs import create_logs, seed_home
from .startup.event_forms import event_forms
from .startup.memory_fit import warn_of_misfit, watch_logs
from .startup.open_files import raise_open_files
from .startup.ports import BoundPorts, Ports
from .startup.setting_files import check_files
from .users.accounts import EVERYBODY, AccountDirectory
from .users.guard import AccountGuard
from .users.oidc.tokens import TokenLogins

logger = logging.getLogger("headwater.server")

STREAMS_END_S = 2.0
"""How long subscriptions have to end."""
SWITCH_INTERVAL_S = 0.0005
"""How long a thread may hold the interpreter while another thread waits for it: the event loop shares it with the
committer.
"""
GC_THRESHOLDS = (5_000, 20, 1_000)
"""How many new objects one collection examines while all threads wait. Each may be a tuple of a hundred. The
thresholds count objects, not bytes, and the oldest generation is collected after half an hour or more. So objects that
hold many bytes form no cycles: connections, requests and responses are freed when they end. """


def serve(config: Config, announce: Callable[[str], None]) -> None:
    """Serve until a signal stops the server. `announce` gets one line for each address when the server is ready.

    Raises InvalidConfiguration, CannotListen, StorageUnavailable (LockLost while serving), StorageCorrupted.
    """
    from .process.event_loop import EventLoop

    logger.info("starting", extra=fields(version=__version__, build=BUILD))
    for key, origin in config.removed.items():
        logger.warning(
            "a setting no longer has an effect", extra=fields(setting=key, origin=origin, instead=REMOVED[key].summary)
        )
    raise_open_files(config)
    check_files(config)
    hangups = Hangups()
    with ExitStack() as ending:
        ending.callback(give_memory_back())
        manager = ending.enter_context(closing(ServiceManager(os.environ.get(ADDRESS_VARIABLE))))
        waiting = SharedBytes(MemoryShares.of(config.memory).threads)
        if (warning := never_fits(waiting)) is not None:
            logger.warning("too little memory for a large append: %s", warning)
        if config.home is None:
            with asyncio.Runner(loop_factory=EventLoop) as runner:
                runner.run(ServerRun(config, announce, hangups, manager, waiting).run())
        else:
            _serve_home(config, announce, hangups, manager, waiting)


def _serve_home(
    config: Config,
    announce: Callable[[str], None],
    hangups: Hangups,
    manager: ServiceManager,
    waiting: SharedBytes,
) -> None:
    """Like `serve`, for a server that shares a home. It restarts whenever its turn as primary or replica ends."""
    from .process.event_loop import EventLoop

    bound = BoundPorts()
    try:
        membership = _joined(config, announce, hangups, manager, waiting, bound)
    except BaseException:
        bound.close()
        raise
    try:
        while membership is not None and membership.goes_on:
            try:
                with asyncio.Runner(loop_factory=EventLoop) as runner:
                    runner.run(ServerRun(config, announce, hangups, manager, waiting, membership, bound).run())
            except (
                HomeUnavailable,
                HomeMoved,
                HomeWentBack,
                NotPrimary,
                OutcomeUnknown,
                CopyOutlived,
                DiskFull,
            ) as error:
                membership.listen()
                membership.could_not_begin(error)
            else:
                membership.listen()
    finally:
        bound.close()
        if membership is not None:
            membership.close()


def _joined(
    config: Config,
    announce: Callable[[str], None],
    hangups: Hangups,
    manager: ServiceManager,
    waiting: SharedBytes,
    bound: BoundPorts,
) -> Membership | None:
    """The place of this server in its home, after one of its hosts accepts writes. None if a signal arrived first."""
    from .process.event_loop import EventLoop

    try:
        return Membership(config, waiting)
    except HomeUnavailable as error:
        if not error.may_pass:
            raise
    with asyncio.Runner(loop_factory=EventLoop) as runner:
        return runner.run(ServerRun(config, announce, hangups, manager, waiting, None, bound).join())


def open_store(
    config: Config,
    bus: Bus | None = None,
    threads: Threads | None = None,
    membership: Membership | None = None,
    on_lock_lost: Callable[[LockLost], None] | None = None,
    waiting: SharedBytes | None = None,
) -> LogStore:
    """The logs in the configured storage. `bus` is notified of their events; `threads` run their maintenance.

    With `membership` they are a copy of the home's logs, and follow it. `on_lock_lost`, `waiting`: see `Engine`.
    Raises StorageUnavailable, StorageCorrupted.
    """
    limits = config.limits
    if config.storage == "memory":
        from ..storage.memory import MemoryStore

        return MemoryStore(bus=bus, clock_patience_ms=limits.clock_patience_ms)
    from ..storage import Engine
    from ..storage.append.writer_table import WriterLimits

    return Engine(
        config.data,
        reserve_bytes=limits.disk_reserve_bytes,
        waiting=waiting,
        unindexed_bytes_max=limits.unindexed_bytes_max,
        clock_patience_ms=limits.clock_patience_ms,
        scrub_ms=limits.scrub_ms,
        ballast_bytes=limits.disk_ballast_bytes,
        writers=WriterLimits(limits.writers_max, limits.writer_unfinished_ms),
        bus=bus,
        threads=threads,
        home=None if membership is None else membership.home,
        on_lost=logger.error if membership is None else membership.lost,
        on_committed=nobody if membership is None else membership.committed.tell,
        follows=membership is not None,
        witness=None if membership is None else membership.witness,
        on_lock_lost=on_lock_lost,
    )


def nobody(key: str, frames: Sequence[EncodedFrame]) -> None:
    """Ignores commits, because there is no home."""


class FrontEnd(Protocol):
    """A front end that the server starts and stops."""

    def stop(self) -> None:
        """End its streams, and refuse new requests."""

    async def close(self) -> None:
        """Release the logs."""


class ServerRun:
    """One run of the server."""

    def __init__(
        self,
        config: Config,
        announce: Callable[[str], None],
        hangups: Hangups,
        manager: ServiceManager,
        waiting: SharedBytes,
        membership: Membership | None = None,
        bound: BoundPorts | None = None,
    ) -> None:
        """`waiting`: what threads may hold for peers; `bound`: ports that stay open for the next run."""
        self._bound = bound
        self._config, self._announce, self._hangups, self._membership = config, announce, hangups, membership
        self._manager, self._waiting = manager, waiting
        self._shares = MemoryShares.of(config.memory)
        self._memory = MemoryAccount(self._shares.loop)
        self._memory.on_ended = _tell_of_stalled
        warn_of_misfit("http.body_bytes_max", config.http.body_bytes_max, self._memory)
        self._activity = LoopActivity()
        health, web = Health(self.unready, self.troubles), WebGuard(config.http, config.host, config.console)
        self._gate = Gate(health, HEALTH_PATHS, RequestMeter(), web, self._activity)
        self._notifications = Notifications(config.management)
        self._bus, self._threads = self._notifications.bus, self._notifications.threads
        if membership is not None:
            membership.bus = self._bus
        self._watchdog = LoopWatchdog(self._bus, self._activity, self._threads)
        self._gil_yield = GilYield()
        self._readers = Readers()
        self._store: LogStore | None = None
        self._reading: list[FrontEnd] = []
        """The front ends that served reads before this server became the primary: their streams continue."""
        self._reading_amqp: ReplicaAmqp | None = None
        """The AMQP port for reading, on a server that shares a home."""
        self._replica_troubles: Callable[[], list[str]] = list
        self._live: asyncio.Task[None] | None = None
        """Samples metrics for the console."""
        self._lock_lost: LockLost | None = None

    async def run(self) -> None:
        """Start, wait for a signal, and stop. Raises the same errors as `serve`, and LockLost: the data directory may
        have a new owner.
        """
        try:
            await self._run(asyncio.Event())
        finally:
            if self._lock_lost is not None:
                raise self._lock_lost

    async def join(self) -> Membership | None:
        """Answer health checks until a host of the home accepts writes. Returns the place of this server in its home,
        or None if a signal arrived first. Raises the same errors as `serve`."""
        stop = asyncio.Event()
        is_told, ports = _on_signals(stop), Ports(self._config, self._bound)
        async with AsyncExitStack() as ending:
            ports.give_back(ending)
            ending.enter_context(self._hangups.reaching(asyncio.get_running_loop(), ports.certificates))
            waits = WaitingForHome(self._config, self._waiting)
            self._gate.standing_by = waits.why
            await self._begin(ports, ending)
            self._manager.ready()
            membership = await waits.join(stop)
            if membership is not None:
                await membership.may_go_on(is_told)
        return membership

    async def _run(self, stop: asyncio.Event) -> None:
        is_told = _on_signals(stop)
        ports, membership = Ports(self._config, self._bound), self._membership
        if membership is not None and not membership.goes_on:  # a signal arrived just before
            stop.set()
        async with AsyncExitStack() as ending:
            if membership is not None:
                ending.push_async_callback(membership.may_go_on, is_told)
            ports.give_back(ending)
            ending.enter_context(self._hangups.reaching(asyncio.get_running_loop(), ports.certificates))
            http = await self._begin(ports, ending)
            opened = await self._open_logs(stop, ending)
            if opened is None:
                return
            guard = self._guard(opened, has_tls=ports.tls is not None)
            if membership is not None and not await self._stand_by(opened, guard, ports, http, stop, ending):
                return
            await self._begin_appends(opened, guard)
            ending.callback(watch_logs(self._bus, opened, self._memory))
            if membership is not None and not await membership.begin():
                stop.set()  # the turn has already ended
            messages, clouds, front_ends = await self._serve(opened, guard, ports, http, ending)
            self._look_after(ending)
            for line in ports.lines:
                self._announce(line)
            self._manager.ready()
            self._notify_started(len(opened.names()))
            await stop.wait()
            if membership is not None:
                await messages.note_run()  # as long as the home still accepts it
                await membership.leave(opened, stops=is_told.is_set())
            if ports.local is not None:
                ports.local.remove_file()
            clouds.stop()
            endings = [self._drain(http, front_ends), messages.stop()]
            if self._reading_amqp is not None:
                endings.append(self._reading_amqp.stop())
            await asyncio.gather(*endings, *([ports.bulk.stop()] if ports.bulk is not None else []))
        logger.info("stopped")

    async def _begin(self, ports: Ports, ending: AsyncExitStack) -> HttpServer:
        """Answer health checks over HTTP; all other requests are refused for now."""
        config = self._config
        self._gate.spans = spans = open_spans(config.tracing)
        if spans is not None:
            ending.push_async_callback(spans.stop)
        if self._membership is not None:
            self._gate.primary, self._gate.standing_by = self._membership.primary, self._membership.standing_by
            self._gate.is_home_away = self._membership.is_home_away
            self._gate.has_lapsed = self._membership.has_lapsed
        admission = Admission(config.http.connections_max, self._gate, self._bus)
        http = HttpServer(self._gate, ports.http, config.http, ports.tls, admission, self._memory)
        await http.start()
        ending.push_async_callback(http.stop)
        return http

    async def _open_logs(self, stop: asyncio.Event, ending: AsyncExitStack) -> LogStore | None:
        """The logs. With a home, they are a copy that follows it, after the home has answered. None if the server must
        stop.
        """
        while True:
            try:
                store = await self._opened(stop)
                break
            except (HomeUnavailable, DiskFull) as error:
                if self._membership is None:
                    raise
                if isinstance(error, DiskFull):
                    self._membership.has_no_room(error)
                self._manager.ready()  # it answers by now, even if it is waiting for its home
                if not await self._membership.pause(stop):
                    return None
        self._store = store
        if self._membership is not None:
            from ..storage import Engine

            assert isinstance(store, Engine)
            self._membership.look_at(store)
        ending.push_async_callback(asyncio.to_thread, store.close)
        ending.push_async_callback(self._notifications.stop)
        await self._notifications.start(store)
        return store

    async def _opened(self, stop: asyncio.Event) -> LogStore:
        """The logs. Filling a copy may take hours. If the server is stopped before it is complete, it stops querying
        the home.
        """
        loop = asyncio.get_running_loop()

        def lose(lost: LockLost) -> None:
            self._lock_lost = lost
            loop.call_soon_threadsafe(stop.set)

        opening = asyncio.ensure_future(
            asyncio.to_thread(open_store, self._config, self._bus, self._threads, self._membership, lose, self._waiting)
        )
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
            if self._membership is not None and not opening.done():
                await asyncio.to_thread(self._membership.home.close)
            return await opening
        finally:
            stopping.cancel()

    async def _stand_by(
        self,
        store: LogStore,
        guard: AccountGuard,
        ports: Ports,
        http: HttpServer,
        stop: asyncio.Event,
        ending: AsyncExitStack,
    ) -> bool:
        """Serve reads until this server becomes the primary. Returns False if it is stopped first."""
        from ..storage import Engine

        membership = self._membership
        assert membership is not None and isinstance(store, Engine) and store.follower is not None

        follower = store.follower

        def hindrance() -> str | None:
            ahead = f"the copy is ahead of its home: {follower.ahead}" if follower.ahead else None
            return ahead or store.unready() or membership.hindrance()

        secret = HomeSecret(store.state, fetch=follower.follow)
        listening = Listening(store.follower, secret, membership.primary, hindrance)
        self._replica_troubles = lambda: [*listening.troubles(), *filter(None, [hindrance()])]
        self._gate.senders = Senders(secret)
        forwarder = Forwarder(membership.primary, secret) if self._config.replica.forward else None
        replica = Replica(store.follower, self._config.replica.stale_ms_max / 1000, lambda: listening.is_live)
        membership.replica = replica
        turns = FairScheduler(activity=self._activity)
        data = self._data(store, guard, turns, None)
        ending.push_async_callback(data.close)
        elsewhere = Elsewhere(membership.amqp_of_primary, self._gate.stale)
        messages = self._reading_amqp = ReplicaAmqp(
            store, guard, self._config.amqp, ports.amqp, ports.amqp_read, ports.tls, elsewhere, self._threads,
            secret, membership.driver.home_time_ms, forwards=self._config.replica.forward,
            bus=self._bus, turns=turns, memory=self._memory,
        )  # fmt: skip
        ending.push_async_callback(messages.stop)
        collector = ServerCollector(store, self._gate, lambda: guard.refusals, rooms=(
            partial(room_metrics.storage_metrics, store), partial(room_metrics.thread_metrics, self._threads),
            partial(room_metrics.http_metrics, http), partial(room_metrics.loop_metrics, self._watchdog),
            partial(room_metrics.memory_metrics, self._memory),
            partial(room_metrics.home_metrics, membership), partial(room_metrics.replica_metrics, replica),
            partial(room_metrics.amqp_metrics, messages.containers),
            partial(room_metrics.forwarding_metrics, forwarder),
            partial(room_metrics.amqp_forwarding_metrics, messages),
        ))  # fmt: skip
        metrics = Metrics(guard, collector, needs_right=self._config.http.metrics_need_right)
        root = RootPage(guard, has_console=forwarder is not None and self._config.console.enabled)
        rooms: dict[str, Application] = {"": root, METRICS.strip("/"): metrics}
        open_paths = (
            () if self._config.http.metrics_need_right else (METRICS,)
        )  # otherwise users would have to be known
        reading: list[FrontEnd] = [data]
        if forwarder is not None:
            reading.append(forwarder)
            ending.push_async_callback(forwarder.close)
        front_ends = marked(by_room(rooms, data), lambda: follower.ahead)
        self._gate.read(front_ends, only_reads, replica.stale, open_paths, forwarder, partial(lacks_log, store))
        if ports.bulk is not None:
            await ports.bulk.start(store, guard, self._threads, self._readers, self._gate.stale)
        await messages.start()
        listening.start(self._threads)
        self._manager.ready()
        try:
            has_turn = await membership.turn(stop)
        finally:
            await asyncio.to_thread(listening.stop)
        if has_turn:
            self._reading += reading
            if forwarder is not None:
                forwarder.retire()
            await messages.end_standing_by()
            await asyncio.to_thread(store.begin_term)
            return True
        await asyncio.gather(self._drain(http, reading), messages.stop())
        return False

    async def _begin_appends(self, store: LogStore, guard: AccountGuard) -> None:
        """Start the tasks in which the server itself appends."""
        await self._notifications.keep(store)  # this is first, so that later notifications are kept
        if self._membership is None:
            create_logs(store, self._config.logs, only_first=not self._config.names_logs)
        else:
            seed_home(store, self._config.logs)
            ensure_secret(store.state)
        guard.directory.remember(has_issuer=self._config.oidc.issuer is not None)

    def _data(
        self, store: LogStore, guard: AccountGuard, turns: FairScheduler, workers: GroupWorkers | None
    ) -> dcb.Application:
        return dcb.Application(
            store,
            guard,
            body_bytes_max=self._config.http.body_bytes_max,
            turns=turns,
            readers=self._readers,
            forms=event_forms(self._config.futoin),
            workers=workers,
            stale=None if self._membership is None else self._gate.stale,
            lacking=self._gate.lacking,
        )

    async def _serve(
        self, store: LogStore, guard: AccountGuard, ports: Ports, http: HttpServer, ending: AsyncExitStack
    ) -> tuple[AmqpServer, cne.Application, Sequence[FrontEnd]]:
        """Start the front ends and admit requests. Returns those that must be stopped."""
        config, spans, bulk = self._config, self._gate.spans, ports.bulk
        turns = FairScheduler(activity=self._activity)
        container = Container(store, guard, config.amqp, bus=self._bus, turns=turns, spans=spans, memory=self._memory)
        await container.nodes.begin()
        management = ManagementNode(container)
        self._notifications.following.append(Following(container.nodes).followers)
        messages = AmqpServer(self._reception(container, management, store), ports.amqp, ports.tls, self._threads)
        clouds = cne.Application(store, guard, config.cne, bus=self._bus, turns=turns, spans=spans)
        ending.push_async_callback(clouds.close)
        await clouds.start()
        guard.refused_lately.listen(self._bus)
        server_entity = ServerEntity(container, store, self.unready, self.troubles, config.http.connections_max)
        driver = None if self._membership is None else self._membership.driver
        reports = None if driver is None else driver.asked.servers
        homes = HomeServers(guard, reports, standing=lambda: None if driver is None else driver.standing)
        serve_management(management, guard, store.state, clouds, http, bulk, self._readers, server_entity, homes)
        front_ends = self._open(store, guard, http, container, clouds, ports, turns, management.management)
        for front_end in front_ends:
            ending.push_async_callback(front_end.close)
        await messages.start()
        ending.push_async_callback(messages.stop)
        if bulk is not None:
            ending.push_async_callback(bulk.stop)
            if self._membership is None:
                await bulk.start(store, guard, self._threads, self._readers)
        return messages, clouds, [*front_ends, *self._reading]

    def _reception(self, container: Container, management: ManagementNode, store: LogStore) -> AmqpReception:
        """Opens the connections of the primary's AMQP, forwarded ones included."""
        answer = partial(attach, container, management)
        if self._membership is None:
            return AmqpReception(container, answer)
        origins = Origins(HomeSecret(store.state), self._membership.driver.home_time_ms)
        return OriginReception(container, answer, origins)

    def _look_after(self, ending: AsyncExitStack) -> None:
        """Start the tasks that watch the process while it serves."""
        _tune_interpreter()
        self._watchdog.start()
        ending.callback(self._watchdog.stop)
        self._gil_yield.start()
        ending.callback(self._gil_yield.stop)
        returning = MemoryReturn(lambda: self._memory.bytes)
        ending.callback(self._threads.task("memory return", returning.run).cancel)

    def _notify_started(self, logs: int) -> None:
        data = "memory" if self._config.storage == "memory" else str(self._config.data)
        self._bus.emit(NotificationType.SERVER_STARTED, version=__version__, logs=logs, data=data)

    def unready(self, role: ServerRole = ServerRole.PRIMARY) -> str | None:
        """Why the server should currently get no work of that role, or None."""
        if role is ServerRole.ANY and self.unready(ServerRole.REPLICA) is None:
            return None
        if role is ServerRole.REPLICA:
            return self._gate.stale() if self._gate.state is State.READING else f"the server is {self._gate.state}"
        standing_by = self._gate.standing_by
        if standing_by is not None and (reason := standing_by()) is not None:
            return reason
        if self._gate.state is not State.OPEN:
            return f"the server is {self._gate.state}"
        return self._store.unready() if self._store is not None else None

    def troubles(self) -> list[str]:
        """Problems that an operator should examine, although the server serves."""
        replica = self._replica_troubles() if self._gate.state is State.READING else ()
        return [*replica, *self._threads.troubles(), *(self._store.troubles() if self._store is not None else ())]

    def _open(
        self,
        store: LogStore,
        guard: AccountGuard,
        http: HttpServer,
        container: Container,
        clouds: cne.Application,
        ports: Ports,
        turns: FairScheduler,
        entities: Management,
    ) -> Sequence[FrontEnd]:
        """Admit requests; returns the front ends that must be stopped and closed."""
        bulk = ports.bulk
        events = futoin.Application(store, guard, self._config.futoin, turns, self._readers)
        data = self._data(store, guard, turns, GroupWorkers(container.nodes))
        traffic = protocol_traffic(
            container.statistics, data.traffic, clouds.service.traffic, events.statistics.traffic, bulk
        )
        rooms_metrics = (
            partial(room_metrics.traffic_metrics, traffic),
            partial(room_metrics.storage_metrics, store),
            partial(room_metrics.home_metrics, self._membership),
            partial(room_metrics.thread_metrics, self._threads),
            partial(room_metrics.http_metrics, http),
            partial(room_metrics.memory_metrics, self._memory),
            partial(
                room_metrics.amqp_metrics, [container, *(self._reading_amqp.containers if self._reading_amqp else ())]
            ),
            partial(room_metrics.amqp_forwarding_metrics, self._reading_amqp),
            partial(room_metrics.futoin_metrics, events.statistics),
            partial(room_metrics.webhook_metrics, clouds.service),
            partial(room_metrics.notification_metrics, self._bus),
            partial(room_metrics.loop_metrics, self._watchdog),
            partial(room_metrics.follower_metrics, self._notifications.watch),
            partial(room_metrics.bulk_metrics, bulk),
        )
        collector = ServerCollector(store, self._gate, lambda: guard.refusals, rooms=rooms_metrics)
        management = management_http.Application(entities, guard)
        rooms: dict[str, Application] = dict.fromkeys(cne.ROOMS, clouds)
        metrics = Metrics(guard, collector, needs_right=self._config.http.metrics_need_right)
        wants = self._config.console
        own: dict[str, Application] = {"": RootPage(guard, has_console=wants.enabled), METRICS.strip("/"): metrics}
        own_rooms: dict[str, Application] = {"futoin": events, "management": management}
        front_ends: list[FrontEnd] = [data, events, management]
        if wants.enabled:
            measuring = Measuring(store, self._gate, container, lambda: guard.refusals, traffic, self._memory)
            watch = self._notifications.watch
            lags = None if watch is None else Lags(watch, clouds.service.followers).now
            live = Live(measuring.sample, lags=lags)
            lag = self._config.management.lag_events, self._config.management.lag_ms
            page = console.Application(
                ConsoleHost(
                    store, guard, guard.sessions, self._bus, live, turns, wants=wants, lag=lag, ports=ports.by_protocol
                )
            )
            self._live = self._threads.task("measuring", live.run)
            own_rooms["console"] = page
            front_ends.append(page)
        if self._membership is not None:
            pushed = PushedFrames(self._membership.committed, HomeSecret(store.state))
            own_rooms[frame_push.ROOM] = pushed
            front_ends.append(pushed)
        self._gate.open(by_room({"logs": data, **own, **own_rooms, **rooms}, data))
        return front_ends

    async def _drain(self, http: HttpServer, front_ends: Sequence[FrontEnd]) -> None:
        """Refuse new requests, end subscriptions, and let running requests finish.

        If another run follows, new connections wait for it, or get a refusal that says so.
        """
        self._bus.emit(NotificationType.SERVER_STOPPING, requests=self._gate.requests, streams=self._gate.streams)
        self._gate.stop()
        if self._live is not None:
            self._live.cancel()
        if self._membership is None or not self._membership.goes_on:
            if self._bound is not None:
                self._bound.close()
            http.refuse_connections()
        for front_end in front_ends:
            front_end.stop()
        if not await self._gate.requests_finished(self._config.limits.stop_ms / 1000):
            logger.warning("requests cut off", extra=fields(requests=self._gate.requests))
        await self._gate.streams_finished(STREAMS_END_S)
        http.cut_off()
        await http.stop()

    def _guard(self, store: LogStore, *, has_tls: bool) -> AccountGuard:
        config = self._config
        directory = AccountDirectory(config.users.values(), store.state, bus=self._bus)
        tokens = TokenLogins(config.oidc) if config.oidc.issuer is not None else None
        self._notifications.looks.append(directory.current)  # another process may change users
        is_private = is_loopback(config.host)
        has_users = tokens is not None or bool(directory.current().by_name)
        if not has_users and not directory.never_had_any:
            raise InvalidConfiguration(
                f"{config.data} had users but no longer contains any, so every request would be allowed. Add a "
                f"user (headwater user add NAME --grant all:* --data {config.data}), pass the configuration that "
                f"defines them (--config FILE), or allow requests without credentials (headwater user "
                f"allow-everybody --data {config.data})",
                "users",
            )
        if not has_users and (allowed := store.state.get(*EVERYBODY)) is not None:
            logger.warning("all requests are allowed without credentials", extra=fields(allowed=allowed.value.decode()))
        if not (is_private or config.insecure or has_users):
            raise InvalidConfiguration(
                f"{config.host} is reachable from other machines and no users are configured, so every request "
                f"would be allowed; add a user (headwater user add NAME --grant all:*), listen on "
                f"127.0.0.1, or accept it with --insecure",
                "host",
            )
        if ANY_ORIGIN in config.http.origins and not has_users:
            raise InvalidConfiguration(
                "* allows every web page to do everything, because no user is configured; list the origins, or "
                "add a user (headwater user add NAME --grant all:*)",
                "http.origins",
            )
        if has_users and not is_private and not has_tls:
            logger.warning("passwords are sent unencrypted: set tls.certificate and tls.key")
        guard = AccountGuard(directory, allows_anybody=is_private or config.insecure, bus=self._bus, tokens=tokens)
        self._gate.web.has_users = lambda: guard.has_users
        return guard


def _tell_of_stalled(owner: str, size: int) -> None:
    logger.warning(
        "connection closed: the client read nothing while memory was low", extra=fields(peer=owner, bytes=size)
    )


def by_room(rooms: Mapping[str, Application], otherwise: Application) -> Application:
    """An ASGI application that routes requests by the first path segment to a front end, or otherwise to `otherwise`.

    The segments of the notification API are case-insensitive.
    """

    def dispatch(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        room = scope["path"][1:].partition("/")[0]
        if room not in rooms and (lowered := room.lower()) in cne.ROOMS:
            room = lowered
        return rooms.get(room, otherwise)(scope, receive, send)

    return dispatch


def _on_signals(stop: asyncio.Event) -> asyncio.Event:
    """The first SIGTERM or SIGINT sets both `stop` and the returned event. The second has its usual effect,
    immediately.
    """
    is_told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop_once() -> None:
        is_told.set()
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_once)
    return is_told


def _tune_interpreter() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.unfreeze()  # a server that was a replica again
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
