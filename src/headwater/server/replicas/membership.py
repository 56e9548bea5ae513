"""This server's role in its home: a replica until it becomes the primary, and again afterwards.

`homes.driver` acquires and releases the lease; this module applies the role to the rest of the server.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ... import __version__
from ...core.errors import DiskFull, EventLogError, StorageUnavailable
from ...core.shared_bytes import SharedBytes
from ...core.store import LogStore
from ...core.watch.bus import Bus
from ...core.watch.notification_types import NotificationType
from ...core.watch.threads import Threads
from ...formats.settings.declaration import InvalidConfiguration
from ...homes.commit_feed import Committed
from ...homes.driver import Driver
from ...homes.hand_over import HandOver, hand_over_of
from ...homes.home_secret import SECRET_RECORD
from ...homes.last_lease import LastLease
from ...homes.postgres.home import PostgresHome
from ...homes.postgres.members import Member
from ...homes.postgres.schema import SCHEMA_VERSION, STANDBY
from ...homes.postgres.servers import ServerReport
from ...homes.postgres.statements import HomeUnavailable
from ...homes.roles.lease import LeaseTimes
from ...homes.roles.machine import OVER, Role
from ...homes.status_report import Reporting
from ...storage.disk.locks import unserved
from ...storage.home.port import NO_HISTORY
from ...storage.home.replicated_log import CopyOutlived
from ...storage.home.witness import Witness
from ...storage.maintenance.follower import Follower, shown
from ..config.settings import Config
from ..process.log_lines import fields
from .replica import Replica

if TYPE_CHECKING:
    from ...storage import Engine

logger = logging.getLogger("headwater.server")

LOOK_S = 0.5
FLUSH_S = 2.0
"""How long a stopping server waits for pending commits."""
TURNS_OF_SIGNAL = 3
"""Iterations of the event loop between a signal and the call of its handler."""
PAUSE_S = 2.0
"""The pause after a failed start, before this server is a replica again."""
LEAVING_S = 2.0
"""How long a stopping server waits for the release of its lease. Otherwise, other servers wait until it expires."""


_TYPES = {
    "taking-over": NotificationType.SERVER_ROLE_CHANGED,
    "primary": NotificationType.SERVER_ROLE_CHANGED,
    "stepping-down": NotificationType.SERVER_ROLE_CHANGED,
    "home-unreachable": NotificationType.HOME_AWAY,
    "home-reachable": NotificationType.HOME_BACK,
    "home-changed": NotificationType.HOME_WENT_BACK,
    "home-went-back": NotificationType.HOME_WENT_BACK,
    "home-accepted": NotificationType.HOME_ACCEPTED,
    "no-primary": NotificationType.HOME_NO_PRIMARY,
}
"""Changes reported as notifications; the others are log lines."""


class Membership:
    """The role of this server in its home, while the process runs."""

    def __init__(self, config: Config, waiting: SharedBytes) -> None:
        """`waiting`: the memory budget of threads.

        Raises InvalidConfiguration; StorageUnavailable if the home cannot be reached or is configured unsafely.
        """
        assert config.home is not None
        self._name, self._addresses = f"{socket.gethostname()}:{config.http.port}", advertised(config)
        self.home = PostgresHome(config.home)
        last_lease = LastLease(config.data)
        self.witness = Witness(config.data)
        """The evidence of this server's copy."""
        self._follower: Follower | None = None
        """The follower that last compared the copy with the home."""
        self.bus: Bus | None = None
        """The bus of the current server, for notifications about roles and the home."""
        self._term, self._lease_s = 0, config.home_lease_ms / 1000
        self._obstacles: dict[str, str] = {}
        """Why this server takes no lease, by kind."""
        try:
            self._check()
            self.driver = Driver(
                self.home,
                self._name,
                self._addresses,
                times=LeaseTimes(length_s=self._lease_s),
                last_lease=last_lease,
                copy_id=self._copy_id,
                told=self._told,
            )
            self._give_back(config.data, last_lease)
        except BaseException:
            self.home.close()
            raise
        self.committed = Committed(SECRET_RECORD, waiting)
        """The listeners to this server's commits."""
        self._is_stopping = self._is_to_reopen = self._misses_primary = False
        self.has_turn = self._is_primary = False
        self._is_deposed = False
        """Whether it stopped because its lease expired. Until its logs are closed, their data may be old."""
        self.home.has_lapsed = self.has_lapsed
        self.replica: Replica | None = None
        """The replica's copy, while another server is the primary."""
        threads = Threads()
        self.driver.start(threads)
        self.reporting = Reporting(self.driver.asked, self._report, self._member)
        self.reporting.start(threads)

    def standing_by(self) -> str | None:
        """Why this server is not the primary; None if it is."""
        if self.has_turn:
            return "the lease was not renewed in time" if self.has_lapsed() else None
        if self.driver.is_away:
            return "the home does not answer"
        standing = self.driver.standing
        if standing is None:
            return "the home has not been checked yet"
        if not standing.is_vouched:
            return f"the home changed: {standing.obstacle}; an operator must check it"
        address = standing.addresses.get("http", "")
        primary = f"{standing.holder or 'no server'} {address and f'({address}) '}is the primary"
        known = f"this server is a replica; {primary}"
        slowness = filter(None, [self.driver.asked.waits_for, self.driver.slowness])
        return "; ".join(
            [known, *(f"this server cannot be the primary: {why}" for why in self._obstacles.values()), *slowness]
        )

    def is_home_away(self) -> bool:
        """Whether the home did not answer the last request."""
        return self.driver.is_away

    def has_lapsed(self) -> bool:
        """Whether this server is a primary whose lease has expired (time asleep counts), so its data may be old."""
        return self._is_deposed or (self._is_primary and not self.driver.may_act())

    def primary(self) -> str | None:
        """The URL of the primary while this server is a replica; None if it is unknown or there is none."""
        return None if self.has_turn else self._primary_by("http")

    def amqp_of_primary(self) -> str | None:
        """The AMQP URL of the primary, even if it is this server; None if it is unknown or there is none."""
        return self._primary_by("amqp")

    def _primary_by(self, protocol: str) -> str | None:
        if self.has_turn:
            return self._addresses.get(protocol)
        standing = self.driver.standing
        if standing is None or not standing.remaining_s or standing.holder == self._name:  # not primary yet
            return None
        return standing.addresses.get(protocol)

    def look_at(self, store: Engine) -> None:
        """The copy is open. A server without disk space takes no lease, unless no other server takes it.

        A primary without disk space gives the lease up if a replica listens, since listeners have space and can take
        over.
        """

        def obstacle() -> str | None:
            is_alone = self.driver.free_for_s > self._lease_s  # `driver` adds another delay
            if self.driver.role in (Role.TAKING_OVER, Role.PRIMARY):
                is_alone = not self.committed.has_listeners
            return None if is_alone else store.unready()

        def hand_over() -> HandOver | None:
            try:
                return hand_over_of(store.state)
            except EventLogError:  # the state is being closed
                return None

        self.driver.obstacle, self.driver.hand_over = obstacle, hand_over
        self._follower = store.follower
        self.reporting.hasten()
        self.driver.opened()

    def hindrance(self) -> str | None:
        """Why this server takes no lease; None if it would."""
        return next(iter(list(self._obstacles.values())), None)

    async def turn(self, stop: asyncio.Event) -> bool:
        """Wait until this server is the next primary; False if it must stop or reopen its copy first."""
        loop = asyncio.get_running_loop()

        def end() -> None:
            self.home.give_up()
            with suppress(RuntimeError):  # that loop is closed: its server has ended
                loop.call_soon_threadsafe(stop.set)

        told = ""
        while not stop.is_set() and not self._is_to_reopen:
            if await asyncio.to_thread(self.driver.wait_for_turn, end, LOOK_S):
                self.has_turn = True
                return True
            self._look_for_primary()
            if (reason := self.standing_by() or "") != told:
                logger.info(told := reason)
        self._is_stopping = not self._is_to_reopen
        self.driver.closed()
        return False

    def _look_for_primary(self) -> None:
        """Report once that there is no primary, if the lease has been free for the length of a lease."""
        misses_primary = self.driver.free_for_s > self._lease_s
        if misses_primary and not self._misses_primary:
            self._told("no-primary", self.hindrance() or "it does not have the lease yet")
        self._misses_primary = misses_primary

    def lost(self, error: Exception) -> None:
        """Appending or following failed for that reason: see `storage.home.replicated_log.Homed`."""
        if isinstance(error, CopyOutlived):
            logger.warning("%s; reopening the copy", error)
            self._is_to_reopen = True  # works before and during `turn`
        else:
            self.driver.lost(error)

    def has_no_room(self, error: DiskFull) -> None:
        """The copy cannot be opened for lack of disk space; this is retried."""
        if "copy-failed" not in self._obstacles:
            logger.error("cannot open the copy: %s", error)
        self.driver.copy_failed(shown(error))

    async def pause(self, stop: asyncio.Event) -> bool:
        """Wait a moment before the next attempt; False if the server must stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await stop.wait()
        self._is_stopping = self._is_stopping or stop.is_set()
        return not stop.is_set()

    async def begin(self) -> bool:
        """Become the primary once the logs are open, before background work starts; False if the lease has ended."""
        self.driver.caught_up()
        self._is_primary = await asyncio.to_thread(self.driver.wait_until_primary)
        self._is_deposed = not self._is_primary
        return self._is_primary

    async def leave(self, store: LogStore, *, stops: bool) -> None:
        """Release the lease first, so that the next primary can start before slow work here."""
        self._is_stopping, self._is_deposed = stops, self.has_lapsed()
        if stops:
            self.driver.stop()
        else:
            self.driver.closed()
        self.home.give_up()
        try:
            async with asyncio.timeout(FLUSH_S):
                await asyncio.to_thread(store.state.flush)
        except (EventLogError, TimeoutError) as error:
            logger.warning("positions that were not yet durable are lost: %s", error or "the home does not answer")
        self.over()
        if stops:
            await asyncio.to_thread(self.driver.wait_until_over, LEAVING_S)

    def over(self) -> None:
        """All work as the primary has ended, or never started."""
        self.has_turn = self._is_primary = False
        self.replica = None
        self.driver.ended()

    async def may_go_on(self, is_told: asyncio.Event) -> None:
        """Note a signal that arrived while a server was ending, so that no further server starts.

        The loop receives no more signals when this returns.
        """
        self.listen()
        for _ in range(TURNS_OF_SIGNAL):
            await asyncio.sleep(0)
        self._is_stopping = self._is_stopping or is_told.is_set()
        self._is_to_reopen = self._is_deposed = False

    def listen(self) -> None:
        """Handle signals between two servers: an event loop that does not run would swallow them."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def _stop(self, *_: object) -> None:
        self._is_stopping = True

    @property
    def goes_on(self) -> bool:
        """Whether the server becomes a replica again instead of ending."""
        return not self._is_stopping

    def could_not_begin(self, error: Exception) -> None:
        """The home failed while the server started, or its copy had no disk space for missing events.

        The lease is released, and the server becomes a replica again.
        """
        logger.error("this server could not start: %s", error)
        self.driver.closed()
        if isinstance(error, DiskFull):
            self.driver.copy_failed(shown(error))
        else:
            self.driver.failed(str(error))
        self.over()
        time.sleep(PAUSE_S)

    def close(self) -> None:
        """Release the lease and close everything."""
        self.driver.stop()
        self.driver.ended()
        self.driver.wait_until_over(0.0 if self.driver.is_away else LEAVING_S)
        self.reporting.stop(leaves=not self.driver.is_away)
        self.driver.close()
        self.home.close()

    def _give_back(self, directory: Path, last_lease: LastLease) -> None:
        """Release the lease of a killed process that used this directory, so that no server waits for it."""
        try:
            with unserved(directory):
                if (term := last_lease.found()) is not None:
                    self.driver.give_back(term)
                    logger.info("released the lease of this server's previous process", extra=fields(term=term.number))
        except StorageUnavailable as error:  # the process lives, or the home failed, which is reported soon
            logger.info("cannot release the lease of this server's previous process: %s", error)

    def _report(self) -> ServerReport:
        """The present state of this server."""
        driver, replica = self.driver, self.replica
        lag_events, lag_s = (0, 0.0) if driver.role is Role.PRIMARY else (None, None)
        if driver.role is not Role.PRIMARY and replica is not None and replica.lag_s != float("inf"):
            lag_events, lag_s = replica.lag_events, replica.lag_s
        return ServerReport(
            self._name, self._addresses, driver.role.value, driver.term, lag_events, lag_s, driver.ahead,
            __version__, SCHEMA_VERSION,
        )  # fmt: skip

    def _member(self) -> Member | None:
        """The evidence of the copy; None while there is no copy.

        Raises OSError, StorageCorrupted, StorageUnavailable.
        """
        follower = self._follower
        if follower is not None:
            self.witness.see(follower.seen)
        if (evidence := self.witness.evidence()) is None:
            return None
        if follower is None:
            return Member(self._name, evidence, NO_HISTORY, self.driver.ahead)
        return Member(self._name, evidence, follower.compared, follower.ahead or self.driver.ahead)

    def _copy_id(self) -> str:
        """The identity of this server's copy; empty if unknown."""
        try:
            evidence = self.witness.evidence()
        except (EventLogError, OSError) as error:
            logger.warning("cannot read the evidence of the copy: %s", error)
            return ""
        return "" if evidence is None else evidence.id

    def _told(self, what: str, why: str) -> None:
        """Notifies the operator: see `homes.roles.actions.Tell`."""
        if what in ("copy-failed", "clock-off", "two-hosts-write"):
            self._obstacles.pop(what, None)
            if why != OVER:
                self._obstacles[what] = why
        self._term = self.driver.term or self._term  # the term is 0 after the lease has expired
        if self.bus is None or (type := _TYPES.get(what)) is None:
            logger.info("%s: %s", what, why)
        elif type is NotificationType.SERVER_ROLE_CHANGED:
            self.bus.emit(type, role=self.driver.role.value, why=why, term=self._term)
        elif type in (NotificationType.HOME_BACK, NotificationType.HOME_ACCEPTED):
            self.bus.emit(type)
        else:
            self.bus.emit(type, why=why)

    def _check(self) -> None:
        problems = []
        for finding in self.home.findings():
            if finding.is_problem:
                problems.append(finding.text)
            else:
                logger.warning("home", extra=fields(finding=finding.text))
        if problems == [STANDBY]:  # the standby may be promoted
            raise HomeUnavailable(STANDBY)
        if problems:
            raise StorageUnavailable(
                f"the database does not provide the guarantees that a home requires: {'; '.join(problems)}"
            )


def advertised(config: Config) -> Mapping[str, str]:
    """Client URLs of this server, by protocol. Raises InvalidConfiguration."""
    found: dict[str, str] = {}
    for each in config.advertise:
        protocol, equals, url = each.partition("=")
        if protocol not in ("http", "amqp", "flight") or not equals or not _is_address(url):
            raise InvalidConfiguration(f"expected http=URL, amqp=URL or flight=URL, got {each!r}", "advertise")
        found[protocol] = url
    return found


def _is_address(url: str) -> bool:
    """Whether it may be public: the URL of a host, without a password, in printable ASCII."""
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.scheme and parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return is_whole and "@" not in parts.netloc and url.isascii() and url.isprintable() and " " not in url
