"""Starts the bulk process, answers it, and starts another where it dies: the server goes on without it meanwhile."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack

import msgspec

from ...core.threads import Threads
from ..listening import CannotListen, addresses
from ..log_lines import fields
from .link import Answering, Call

logger = logging.getLogger("headwater.server")

STARTS_WITHIN_S = 60.0
PAUSE_S_MIN, PAUSE_S_MAX = 0.2, 10.0
"""Between the death of a bulk process and the start of the next; longer each time, until one lives for a while."""
LIVES_S = 30.0


class BulkSettings(msgspec.Struct, frozen=True):
    """What the bulk process is told on its command line, as JSON."""

    host: str
    port: int
    certificate: str
    key: str
    streams_max: int
    staged_bytes_max: int
    disk_reserve_bytes: int | None
    stop_ms: int
    log_level: str


class Reservation:
    """Holds a port for the bulk process: gRPC would share one with whoever has it already, and say nothing."""

    def __init__(self, host: str, port: int, flag: str) -> None:
        """Raises CannotListen."""
        self.family, self.address = addresses(host)[0]
        self._held = socket.socket(self.family, socket.SOCK_STREAM)
        try:
            with socket.socket(self.family, socket.SOCK_STREAM) as alone:  # fails where anybody listens
                alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                alone.bind((self.address, port))
                alone.listen(1)
                self.port: int = alone.getsockname()[1]
            self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._held.bind((self.address, self.port))  # without listening: no connection comes here
        except OSError as error:
            self._held.close()
            remedy = f"choose another with {flag} (0 takes any free one), or do without (--flight-enabled false)"
            raise CannotListen(f"cannot listen on {self.address} port {port}: {error.strerror}; {remedy}") from None

    @property
    def host(self) -> str:
        """The address, as a URL has it."""
        return f"[{self.address}]" if self.family == socket.AF_INET6 else self.address

    def close(self) -> None:
        """Let go of the port."""
        self._held.close()


class Supervisor:
    """One bulk process after the other, from `start` to `stop`."""

    def __init__(self, settings: BulkSettings, calls: Mapping[str, Call], threads: Threads | None = None) -> None:
        self._settings, self._threads = settings, threads or Threads()
        self._calls = {**calls, "ready": self._ready}
        self._is_ready = asyncio.Event()
        self._is_stopping = False
        self._process: asyncio.subprocess.Process | None = None
        self._answering: Answering | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_serving = False
        """Whether the process has said that it serves, and lives."""
        self.deaths = 0
        """How many processes ended by themselves."""

    async def start(self) -> None:
        """Start the first one, and wait until it serves. Raises CannotListen."""
        self._task = self._threads.task("bulk process", self._run)
        ready = asyncio.create_task(self._is_ready.wait())
        await asyncio.wait((self._task, ready), timeout=STARTS_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if not self._is_ready.is_set():
            await self.stop()
            raise CannotListen(
                "the bulk process did not start; its error is above; --flight-enabled false turns Arrow Flight off"
            )

    async def stop(self) -> None:
        """Let it finish what runs, then end it."""
        self._is_stopping = True
        if self._answering is not None:
            self._answering.ask("stop")
        if self._process is not None and self._process.returncode is None:
            try:
                await asyncio.wait_for(self._process.wait(), self._settings.stop_ms / 1000 + 2)
            except TimeoutError:
                logger.warning("the bulk process does not end; it is killed")
                self._process.kill()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        pause_s = PAUSE_S_MIN
        loop = asyncio.get_running_loop()
        while not self._is_stopping:
            started = loop.time()
            try:
                reason = f"exit code {await self._run_one()}"
            except Exception as error:  # no process or descriptor is left, say; that passes, and then it must go on
                reason = repr(error)
            self.is_serving = False
            if self._is_stopping or not self._is_ready.is_set():
                return
            self.deaths += 1
            pause_s = PAUSE_S_MIN if loop.time() - started > LIVES_S else min(pause_s * 2, PAUSE_S_MAX)
            logger.error("the bulk process died; another is started", extra=fields(reason=reason, pause_s=pause_s))
            await asyncio.sleep(pause_s)

    async def _run_one(self) -> int:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs, ExitStack() as on_failure:
            on_failure.callback(ours.close)
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                "from headwater.server.bulk.process import main; main()",
                str(theirs.fileno()),
                msgspec.json.encode(self._settings).decode(),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is for the server, which then stops this one in order
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            on_failure.pop_all()
        self._answering = Answering(self._calls)
        try:
            await self._answering.run(ours)
            return await self._process.wait()
        finally:
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()

    async def _ready(self) -> None:
        self.is_serving = True
        self._is_ready.set()
