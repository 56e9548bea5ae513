"""One WebSocket connection: answers the peer's requests concurrently, and calls the peer back (FTN5, FTN3).

Everything that a peer can make it hold is bounded: running requests, large replies among them, unanswered calls, and
the size of a message, which the server's WebSocket protocol checks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from ..core.event import NO_ATTRIBUTES
from ..core.log import AppendResult
from ..http import Message as Received
from ..http import Receive, Send
from ..http.asgi import HELD
from ..http.host import own
from .calls import Handler, Pushes, Reply, answer, decoded, failed, refusal
from .errors import invalid
from .functions.generate import begin_add_event
from .functions.quick_add import begin, reply_to
from .host import Host
from .http import Request
from .identity import shown_user
from .messages.coders import JSON
from .messages.message import Coder, Message
from .outlet import Claim

_logger = logging.getLogger("headwater.futoin")

REQUESTS_MAX = 128
"""The maximum number of concurrent requests on one connection. The next one is read when one of them is answered."""
LARGE_REPLIES_MAX = 4
"""How many of these may have a reply of up to 8M. They wait for events concurrently, but pages are made one at a
time.
"""
ADDITIONS = ("addEvent", "addEvents")
"""Functions whose events are stored in call order."""
WAITING_BYTES_MAX = 1024 * 1024
"""The maximum size of additions that wait for an earlier one on a connection, in bytes. The message that reaches it is
the last one read.
"""
GOODBYE_S = 1.0
"""How long running requests may take when the connection closes."""
CLOSE_NORMAL, CLOSE_FAULT, CLOSE_RESTART = 1000, 1011, 1012


class Slots:
    """A limit on running requests."""

    def __init__(self, most: int) -> None:
        self._most = self.free = most
        self._changed: asyncio.Event | None = None
        """Set only while a task waits."""

    async def take(self) -> None:
        """Take a slot, waiting until one is free."""
        await self._until(lambda: self.free > 0)
        self.free -= 1

    async def all_free(self) -> None:
        """Wait until no request runs: all replies are sent."""
        await self._until(lambda: self.free == self._most)

    def give_back(self) -> None:
        """Release a slot: the reply was sent."""
        self.free += 1
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._changed = self._changed or asyncio.Event()
            await self._changed.wait()


class FutoinConnection:
    """A connection of one peer to one log's endpoint."""

    trace = NO_ATTRIBUTES
    """Empty, because the header of the WebSocket request belongs to no single call: see calls.Channel."""

    def __init__(
        self,
        host: Host,
        handlers: Mapping[tuple[str, str], Handler],
        log_name: str,
        request: Request,
        receive: Receive,
        send: Send,
    ) -> None:
        self._host, self._handlers, self._log_name = host, handlers, log_name
        self._receive, self._send = receive, send
        self.scope, self.share, self.outlet = request.scope, request.share, request.outlet
        self.peer, self.is_secure = request.peer, request.is_secure
        self.authorization, self.certified = request.authorization, request.certified
        self.pushes: Pushes = {}
        """See calls.Connection."""
        self._is_over = False
        self._beginning: asyncio.Future[None] | None = None
        """The addition whose turn it is: done once it has its place in the log."""
        self._newest: asyncio.Future[None] | None = None
        """The same for the newest addition that may have to wait."""
        self._waiting_bytes = 0
        """The bytes of additions that have no place in the log yet."""
        self._held = 0
        """The bytes of the share that the present message holds until its answer takes over."""
        self._slots = Slots(REQUESTS_MAX)
        one_at_a_time = asyncio.Semaphore(1)
        self._turns = {
            "pollEvents": asyncio.Semaphore(LARGE_REPLIES_MAX),
            "registerConsumer": one_at_a_time,
            "readyToReceive": one_at_a_time,  # so that it finds the consumer registered just before
        }
        """Functions with limited concurrency, run in call order."""
        self._running: set[asyncio.Future[Any]] = set()
        self._replies: deque[bytes] = deque()
        """Replies to additions, still to be sent."""
        self._has_replies: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls: dict[str, asyncio.Future[str | None]] = {}
        """Our unanswered calls, by rid."""
        self._calls_made = 0
        self._closing: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()

    @property
    def connection(self) -> FutoinConnection:
        """See calls.Channel: the peer can be called back."""
        return self

    async def serve(self) -> None:
        """Serve until the peer leaves or the connection is closed."""
        await self._receive()  # websocket.connect
        self._host.own_unknown(self.share, self.peer)
        if (user := await shown_user(self._host.guard, self.authorization, self.certified, self.peer)) and user.name:
            own(self.share, user)
        await self._send({"type": "websocket.accept"})
        reading, writing = asyncio.create_task(self._read()), asyncio.create_task(self._write_replies())
        try:
            await asyncio.wait(
                (reading, writing, self._closing, self._host.stopping), return_when=asyncio.FIRST_COMPLETED
            )
            if reading.done() or writing.done():
                (reading if reading.done() else writing).result()
                return
            await self._say_goodbye()
        finally:
            self._is_over = True
            reading.cancel()
            writing.cancel()
            for push in list(self.pushes.values()):
                push.stop()
            for task in self._running:
                task.cancel()
            await asyncio.gather(reading, writing, *self._running, return_exceptions=True)

    def begun(self) -> None:
        """See calls.Connection."""
        if self._beginning is not None:
            _end(self._beginning)

    async def call(self, function: str, parameters: bytes) -> asyncio.Future[str | None]:
        """See calls.Connection."""
        self._calls_made += 1
        rid = f"S{self._calls_made}"
        answered: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._calls[rid] = answered
        answered.add_done_callback(lambda _: self._calls.pop(rid, None))
        await self._transmit(JSON.message([("f", JSON.value(function)), ("p", parameters), ("rid", JSON.value(rid))]))
        return answered

    def close(self, reason: str) -> None:
        """See calls.Connection."""
        if not self._closing.done():
            self._closing.set_result((CLOSE_NORMAL, reason))

    def fail(self) -> None:
        """See calls.Connection."""
        if not self._closing.done():
            _logger.exception("a push failed")
            self._closing.set_result((CLOSE_FAULT, "internal error"))

    async def _read(self) -> None:
        while True:
            received = await self._receive()
            if received["type"] == "websocket.disconnect":
                return
            body = received.get("bytes")
            if body is None:
                body = received["text"].encode("utf-8", "surrogatepass")
            await self._take(body, received)

    def _begin_at_once(self, body: bytes) -> bool:
        """Begin the addition in a message if that needs no waiting. Returns whether it began."""
        if not self._slots.free or self._waits:
            return False
        adding = begin(self._host, self._log_name, self, body, self._ended)
        if adding is None:
            return False
        if adding.user.name:
            own(self.share, adding.user)
        self._slots.free -= 1
        return True

    async def _take(self, body: bytes, received: Received) -> None:
        """Handle a message: an answer to one of our calls, or a request, which is answered concurrently.

        A request holds its bytes of the connection's share until it is answered.
        """
        if self._begin_at_once(body):
            return
        message = await decoded(self._host, body)
        if isinstance(message, Reply):
            await self._transmit(message.body)
        elif message.is_reply:
            self._take_answer(message)
        elif message.rid is None:
            await self._transmit(refusal(self._host, invalid("Missing or invalid req.rid"), message.coder).body)
        else:
            await self._slots.take()
            self._held = received.pop(HELD, 0)
            name = message.f.rpartition(":")[2] if isinstance(message.f, str) else ""
            if name == "addEvent" and not self._waits and self._begin_adding(message):
                return
            if name in ADDITIONS:
                await self._add(message, len(body))
            else:
                self._run(self._answer(message, self._turns.get(name)))

    @property
    def _waits(self) -> bool:
        """Whether an addition waits for its place in the log: all later ones then wait too."""
        return self._newest is not None and not self._newest.done()

    async def _add(self, message: Message, size: int) -> None:
        """Take an addition that may wait for a login or for the log. Returns when there is room for more."""
        before, begun = self._newest, asyncio.get_running_loop().create_future()
        self._newest = begun
        self._waiting_bytes += size
        begun.add_done_callback(lambda _: self._has_begun(size))
        self._run(self._answer_addition(message, before, begun)).add_done_callback(lambda _: _end(begun))
        if self._waiting_bytes >= WAITING_BYTES_MAX:
            await asyncio.wait((begun,))

    def _has_begun(self, size: int) -> None:
        self._waiting_bytes -= size

    async def _answer_addition(
        self, message: Message, before: asyncio.Future[None] | None, begun: asyncio.Future[None]
    ) -> None:
        if before is not None and not before.done():
            await asyncio.wait((before,))
        self._beginning = begun
        await self._answer(message, None)

    def _run(self, answering: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(answering)
        self._keep(task)
        task.add_done_callback(self._answered)
        return task

    def _keep(self, answering: asyncio.Future[Any]) -> None:
        """Keep the task that answers a message, and the message's bytes, until it is done."""
        self._running.add(answering)
        if held := self._held:
            self._held = 0
            answering.add_done_callback(lambda _: self.share.give(held))

    def _begin_adding(self, message: Message) -> bool:
        """Begin an addition without its own task. Returns whether that was possible."""
        append = begin_add_event(self._host, self._log_name, self, message)
        if append is None:
            return False
        self._keep(append)
        append.add_done_callback(lambda append: self._added(message.coder, message.rid, append))
        return True

    def _ended(self, rid: str, outcome: AppendResult | BaseException) -> None:
        """End an addition that was begun at once."""
        if not isinstance(outcome, BaseException):
            self._reply(reply_to(rid, outcome.first))
        elif not self._is_over:
            self._reply(failed(self._host, JSON, rid, self._log_name, outcome).body)

    def _added(self, coder: Coder, rid: str | None, append: asyncio.Future[AppendResult]) -> None:
        self._running.discard(append)
        if append.cancelled():
            self._slots.give_back()
        elif (error := append.exception()) is not None:
            self._reply(failed(self._host, coder, rid, self._log_name, error).body)
        else:
            members = [("r", coder.value(str(append.result().first))), ("rid", coder.value(rid))]
            self._reply(coder.message(members))

    def _reply(self, reply: bytes) -> None:
        """Send the reply to an addition once the peer has received the earlier ones."""
        self._replies.append(reply)
        if not self._has_replies.done():
            self._has_replies.set_result(None)

    async def _write_replies(self) -> None:
        """Send the replies to additions as fast as the peer reads; a request counts as running until its reply is
        sent."""
        while True:
            await self._has_replies
            self._has_replies = asyncio.get_running_loop().create_future()
            while self._replies:
                await self._transmit(self._replies[0])
                self._replies.popleft()
                self._slots.give_back()

    def _take_answer(self, message: Message) -> None:
        """Take the answer to one of our calls; late answers are ignored."""
        answered = self._calls.get(message.rid or "")
        if answered is not None and not answered.done():
            answered.set_result(None if message.error is None else str(message.error))

    async def _answer(self, message: Message, turn: asyncio.Semaphore | None) -> None:
        with suppress(OSError):  # the peer has left
            if turn is None:
                await self._do(message)
            else:
                async with turn:
                    await self._do(message)

    async def _do(self, message: Message) -> None:
        with Claim(self.outlet) as claim:
            reply: Reply = await answer(self._host, self._handlers, self._log_name, self, claim, message)
            await self._transmit(reply.body)
        if reply.afterwards is not None:
            reply.afterwards()

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._slots.give_back()

    async def _transmit(self, body: bytes) -> None:
        """Send a binary message, as every FutoIn peer does and accepts; waits while the peer does not read."""
        await self._send({"type": "websocket.send", "bytes": body})

    async def _say_goodbye(self) -> None:
        """Let running requests finish, then close."""
        code, reason = self._closing.result() if self._closing.done() else (CLOSE_RESTART, "the server is stopping")
        with suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await self._slots.all_free()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await self._send({"type": "websocket.close", "code": code, "reason": reason})


def _end(waited_for: asyncio.Future[None]) -> None:
    if not waited_for.done():
        waited_for.set_result(None)
