"""The bulk plane of a server: whether and where it serves, and its start and stop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Self

from ...core.access import Guard
from ...core.loop.traffic import Traffic
from ...core.readers import Readers
from ...core.store import LogStore
from ...core.watch.threads import Threads
from ...flight.server.memory import never_fits
from ..config.memory_shares import MemoryShares
from ..config.settings import Config
from ..process.log_lines import fields
from .callers import BulkCaller
from .calls import BulkCalls
from .supervisor import BulkSettings, BulkSupervisor, Reservation

logger = logging.getLogger("headwater.server")


class BulkPlane:
    """Arrow Flight on a port that was reserved before anything else was opened."""

    def __init__(self, config: Config, reservation: Reservation, *, is_for_more: bool = False) -> None:
        """`is_for_more`: the next run of the server has the same reservation, unless it is closed."""
        self._config, self._reservation, self._is_for_more = config, reservation, is_for_more
        self._supervisor: BulkSupervisor | None = None
        self._calls: BulkCalls | None = None
        scheme = "grpc" if config.tls.certificate is None else "grpc+tls"
        self.port = reservation.port
        self.url = f"{scheme}://{reservation.host}:{reservation.port}"

    @classmethod
    def reserved(cls, config: Config, reserve: Callable[[str, int, str], Reservation] | None = None) -> Self | None:
        """The bulk plane; None if it is disabled, or if logs are not on disk. Raises CannotListen.

        `reserve` gets the port for several runs of the server.
        """
        if not config.flight.enabled:
            return None
        if config.storage == "memory":
            logger.info(
                "Arrow Flight is disabled", extra=fields(reason="it requires logs on disk, but storage is memory")
            )
            return None
        reservation = (reserve or Reservation)(config.host, config.flight.port, "--flight-port")
        return cls(config, reservation, is_for_more=reserve is not None)

    @property
    def is_up(self) -> bool:
        """Whether Flight is served, or will be for its first client. False while a process that died is being
        replaced.
        """
        return self._supervisor is not None and self._supervisor.is_up

    @property
    def is_serving(self) -> bool:
        """Whether a process is serving at this moment."""
        return self._supervisor is not None and self._supervisor.is_serving

    @property
    def deaths(self) -> int:
        """How many bulk processes ended unexpectedly."""
        return 0 if self._supervisor is None else self._supervisor.deaths

    @property
    def ended(self) -> int:
        """How many connections bulk processes closed because their peers sent more than was accepted."""
        return 0 if self._calls is None else self._calls.ended

    @property
    def callers(self) -> Mapping[str, BulkCaller]:
        """Recent callers, by their names as entities."""
        return {} if self._calls is None else self._calls.callers.known

    @property
    def traffic(self) -> Traffic:
        """Events appended and read."""
        return Traffic() if self._calls is None else self._calls.traffic

    async def start(
        self,
        store: LogStore,
        guard: Guard,
        threads: Threads | None = None,
        readers: Readers | None = None,
        stale: Callable[[str | None], str | None] = lambda log: None,
    ) -> None:
        """Serve, or wait for the first client to begin; `readers` get its streams, `stale`: see BulkCalls.

        Raises CannotListen.
        """
        config = self._config
        memory_bytes_max = MemoryShares.of(config.memory).flight
        if (warning := never_fits(memory_bytes_max)) is not None:
            logger.warning("too little memory for Arrow Flight: %s", warning)
        settings = BulkSettings(
            host=self._reservation.host,
            port=self._reservation.port,
            certificate=str(config.tls.certificate or ""),
            key=str(config.tls.key or ""),
            streams_max=config.flight.streams_max,
            lends=config.flight.lends,
            staged_bytes_max=config.flight.staged_bytes_max,
            disk_reserve_bytes=config.limits.disk_reserve_bytes,
            stop_ms=config.limits.stop_ms,
            log_level=config.log_level,
            memory_bytes_max=memory_bytes_max,
        )
        self._calls = calls = BulkCalls(store, guard, readers, stale)
        waits = config.flight.start == "first_client"
        self._supervisor = BulkSupervisor(
            settings, self._reservation, calls.table(), threads, waits=waits, ended=calls.forget_streams
        )
        calls.ask = self._supervisor.ask
        await self._supervisor.start()

    async def stop(self) -> None:
        """Let running reads and writes finish, end the process, and release the port unless another run needs it."""
        if self._supervisor is not None:
            await self._supervisor.stop(keeps_port=self._is_for_more and not self._reservation.is_closed)
            self._supervisor = None
        if self._calls is not None:
            self._calls.close()
        if not self._is_for_more:
            self._reservation.close()
