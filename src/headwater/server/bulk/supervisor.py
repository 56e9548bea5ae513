"""Starts the bulk process, answers it, and restarts it if it dies. The server continues without it in the meantime.
Until it serves, a listening socket holds its port, and clients wait there; it takes them over (`early_connections`).
Clients that connect between two runs of a server wait there too."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress

import msgspec

from ...core.watch.threads import Threads
from ..process.log_lines import fields
from ..process.sockets import CannotListen, addresses, close_all
from .link import Answering, Call

logger = logging.getLogger("headwater.server")

STARTS_WITHIN_S = 60.0
PROGRAM = "from headwater.server.bulk.process import main; main()"
"""The program of the process."""
PAUSE_S_MIN, PAUSE_S_MAX = 0.2, 10.0
"""The pause between the death of a bulk process and the next start. It grows each time, until a process runs for a
while.
"""
LIVES_S = 30.0
HELD_MAX = 64
"""How many connections may wait for the process. The system makes others retry after a second."""
PREVIOUS_S, PREVIOUS_LOOK_S = 3.0, 0.05
"""How long a start waits for its port, and how often it checks."""
SHARED_S = 2.0
"""How long a process that must end may take to share its port, so that no client is refused in between."""
SILENT_S = 20
"""A client that sends nothing for this long, such as a load balancer's probe, is disconnected and does not start a
process. Linux rounds this to its own retransmissions, which makes it 31 s. """


class BulkSettings(msgspec.Struct, frozen=True):
    """The settings on the bulk process's command line, as JSON."""

    host: str
    port: int
    certificate: str
    key: str
    streams_max: int
    lends: bool
    staged_bytes_max: int
    disk_reserve_bytes: int | None
    stop_ms: int
    log_level: str
    memory_bytes_max: int
    """The memory that it may hold for its clients."""


class Reservation:
    """Holds a port for the bulk processes, from the start of the server to its end."""

    def __init__(self, host: str, port: int, flag: str) -> None:
        """Raises CannotListen. If the port is in use, it waits for PREVIOUS_S: the bulk process of a killed server
        needs a moment to end."""
        self.family, self.address = addresses(host)[0]
        self._held = socket.socket(self.family, socket.SOCK_STREAM)
        try:
            self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._bind_after_previous(port)
            self.port: int = self._held.getsockname()[1]
            self._listening: socket.socket | None = self._listen()  # fails if another process listens
        except OSError as error:
            self._held.close()
            remedy = f"choose another with {flag} (0 = any free port), or disable it (--flight-enabled false)"
            raise CannotListen(f"cannot listen on {self.address} port {port}: {error.strerror}; {remedy}") from None

    @property
    def host(self) -> str:
        """The address, in URL form."""
        return f"[{self.address}]" if self.family == socket.AF_INET6 else self.address

    def listening(self, *, shares: bool = False) -> socket.socket:
        """The socket on which clients wait, until it is handed over. Raises OSError if another process listens there.

        `shares`: the other process shares the port, and some clients still reach it.
        """
        if self._listening is None:
            self._listening = self._listen(shares=shares)
        return self._listening

    def handed_over(self) -> None:
        """A process now has the socket on which clients wait, and will listen itself."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def close(self) -> None:
        """Release the port."""
        self.handed_over()
        self._held.close()

    @property
    def is_closed(self) -> bool:
        """Whether the port was released."""
        return self._held.fileno() < 0

    def _bind_after_previous(self, port: int) -> None:
        """Bind it without listening, so that no connection arrives here. Raises OSError if another process keeps it."""
        deadline, is_told = time.monotonic() + PREVIOUS_S, False
        while True:
            try:
                self._held.bind((self.address, port))
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                    raise
            if not is_told:
                what = "another process uses the Arrow Flight port; waiting, because it may belong to a killed server"
                logger.warning(what, extra=fields(port=port, seconds=PREVIOUS_S))
                is_told = True
            time.sleep(PREVIOUS_LOOK_S)

    def _listen(self, *, shares: bool = False) -> socket.socket:
        listening = socket.socket(self.family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shares:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if hasattr(socket, "TCP_DEFER_ACCEPT"):
                listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, SILENT_S)
            listening.bind((self.address, self.port))
            listening.listen(HELD_MAX)
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
        return listening


class BulkSupervisor:
    """One bulk process after the other, from `start` to `stop`."""

    def __init__(
        self,
        settings: BulkSettings,
        port: Reservation,
        calls: Mapping[str, Call],
        threads: Threads | None = None,
        *,
        waits: bool = False,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """`waits`: the first process starts with the first client, which waits for it; later ones start at once.

        `ended` is called when a process has ended.
        """
        self._settings, self._port, self._threads = settings, port, threads or Threads()
        self._waits, self._ended = waits, ended
        self._calls = {**calls, "ready": self._ready, "port_shared": self._port_shared}
        self._is_ready, self._is_shared = asyncio.Event(), asyncio.Event()
        self._is_stopping = False
        self._process: asyncio.subprocess.Process | None = None
        self._answering: Answering | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_serving = False
        """Whether the process has reported that it serves, and is alive."""
        self.is_up = waits
        """Whether Flight is served, or will be for its first client, as far as known."""
        self.deaths = 0
        """How many processes ended unexpectedly."""

    async def start(self) -> None:
        """Start the first one, and wait until it serves, unless it waits for its first client. Raises CannotListen."""
        self._task = self._threads.task("bulk process", self._run)
        if self._waits:
            return
        ready = asyncio.create_task(self._is_ready.wait())
        await asyncio.wait((self._task, ready), timeout=STARTS_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if not self._is_ready.is_set():
            await self.stop()
            raise CannotListen(
                "the bulk process did not start; see its error above; --flight-enabled false disables Arrow Flight"
            )

    def ask(self, what: str, *arguments: object) -> None:
        """Send a message to the process, if there is one."""
        if self._answering is not None:
            self._answering.ask(what, *arguments)

    async def stop(self, *, keeps_port: bool = False) -> None:
        """Let it finish its running work, then end it. `keeps_port`: clients that connect in the meantime wait for the
        next process.
        """
        self._is_stopping = True
        if keeps_port and self.is_serving:
            await self._share_port()
        if self._answering is not None:
            self._answering.ask("stop")
        if self._process is not None and self._process.returncode is None:
            try:
                await asyncio.wait_for(self._process.wait(), self._settings.stop_ms / 1000 + 2)
            except TimeoutError:
                logger.warning("the bulk process did not exit in time; killing it")
                self._process.kill()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if keeps_port:
            self._hold_port()

    async def _share_port(self) -> None:
        """Listen in addition to the serving process, which is about to end."""
        assert self._answering is not None
        self._answering.ask("share_port")
        with suppress(TimeoutError):
            async with asyncio.timeout(SHARED_S):
                await self._is_shared.wait()
                self._hold_port(shares=True)

    def _hold_port(self, *, shares: bool = False) -> None:
        try:
            self._port.listening(shares=shares)
        except OSError as error:
            logger.warning("the Arrow Flight port is temporarily closed: %s", error)

    async def _run(self) -> None:
        pause_s = PAUSE_S_MIN
        loop = asyncio.get_running_loop()
        while not self._is_stopping:
            started = loop.time()
            try:
                with ExitStack() as held:
                    sockets = [self._port.listening()]
                    if self._waits:
                        sockets.append(held.enter_context(await _first_client(sockets[0])))
                        logger.info("starting the bulk process for its first client")
                        started = loop.time()
                    reason = f"exit code {await self._run_one(sockets)}"
            except Exception as error:  # e.g. no descriptor is left; try again later
                reason = repr(error)
            self.is_serving = self.is_up = False
            if self._is_stopping or not (self._waits or self._is_ready.is_set()):
                return
            self.deaths += 1
            pause_s = PAUSE_S_MIN if loop.time() - started > LIVES_S else min(pause_s * 2, PAUSE_S_MAX)
            logger.error("the bulk process died; starting another", extra=fields(reason=reason, pause_s=pause_s))
            await asyncio.sleep(pause_s)

    async def _run_one(self, held: Sequence[socket.socket]) -> int:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs, ExitStack() as on_failure:
            on_failure.callback(ours.close)
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                PROGRAM,
                str(theirs.fileno()),
                msgspec.json.encode(self._settings).decode(),
                *(str(each.fileno()) for each in held),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *(each.fileno() for each in held)),
                start_new_session=True,  # Ctrl-C is meant for the server, which then shuts this process down gracefully
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            on_failure.pop_all()
        close_all(held)  # they belong to the process now; if it dies, the waiting connections end
        self._port.handed_over()
        self._answering = Answering(self._calls)
        try:
            await self._answering.run(ours)
            return await self._process.wait()
        finally:
            self._ended()
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()

    async def _port_shared(self) -> None:
        self._is_shared.set()

    async def _ready(self) -> None:
        self.is_serving = self.is_up = True
        self._waits = False
        self._is_ready.set()


async def _first_client(listening: socket.socket) -> socket.socket:
    """The first connection with data. Earlier connections that have ended, or have sent nothing, are closed."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(listening, came.set)
    try:
        while True:
            await came.wait()
            came.clear()
            with suppress(BlockingIOError, ConnectionError):
                client, _ = listening.accept()
                client.setblocking(False)
                if _has_spoken(client):
                    return client
                client.close()
    finally:
        loop.remove_reader(listening)


def _has_spoken(client: socket.socket) -> bool:
    try:
        return bool(client.recv(1, socket.MSG_PEEK))
    except BlockingIOError:  # on systems that do not wait for the first data, a client may be about to send it
        return not hasattr(socket, "TCP_DEFER_ACCEPT")
    except OSError:
        return False
