"""The entry of every HTTP request: counts and measures it, and refuses it while the server starts or stops.

Forbidden requests of web pages are refused first (`web_guard`).

The gate distinguishes requests, which finish before the logs close, from streams (subscriptions and WebSockets), which
end because the logs close. Health checks always pass and are not counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Container
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from ...core.errors import LogNotFound, StorageUnavailable
from ...core.limits import show
from ...core.loop.scheduler import LoopActivity
from ...core.watch.spans import Spans
from ...formats.problem import Problem
from ...http import Application, Exchange, Message, Receive, Scope, Send, refuse_unready
from ...http.browsers import HEAD
from ...http.errors import CLOSE, AskPrimary, HttpError
from ...http.problems import problem_of
from .forwarding.sender import Sender, Senders
from .meter import RequestMeter
from .problems import answer_in_form, answer_problem
from .web_guard import WebGuard, unchanged

UNMATCHED = "unmatched"
OPERATOR_ROOMS = frozenset({"console", "management", "metrics"})
"""First path segments for operators. They are served even when there are too many connections."""


class State(StrEnum):
    """The state of a server. Each state occurs once, in this order. Without a home, the server is never a replica."""

    STARTING = "starting"
    READING = "a replica"
    """Another server accepts changes."""
    OPEN = "open"
    STOPPING = "stopping"


class Forwarding(Protocol):
    """Forwards requests to the primary."""

    def takes(self, scope: Scope) -> bool:
        """Whether this request can be forwarded now."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request or WebSocket that it accepts."""


class Gate:
    """An ASGI application around the front ends."""

    def __init__(
        self,
        health: Application,
        health_paths: Container[str],
        meter: RequestMeter,
        web: WebGuard | None = None,
        activity: LoopActivity | None = None,
    ) -> None:
        """`web` knows the allowed origins; by default, as for a server on loopback. `activity` records each request."""
        self._activity = activity or LoopActivity()
        self._health, self._health_paths, self.meter = health, health_paths, meter
        self.web = web or WebGuard()
        self.primary: Callable[[], str | None] = lambda: None
        """The address of this replica's primary; None if there is none or it is unknown."""
        self.standing_by: Callable[[], str | None] | None = None
        """Returns why this server is not the primary, or None if it is. The attribute is None if the server has no
        home.
        """
        self.is_home_away: Callable[[], bool] = lambda: False
        """Returns whether this server's home, its database, does not answer."""
        self.has_lapsed: Callable[[], bool] | None = None
        """Returns whether this server's lease as the primary has expired, so that its data may be old. None if it has
        no home.
        """
        self.senders: Senders | None = None
        """Recognises the servers of this server's home, once its state is open."""
        self._forwarding: Forwarding | None = None
        self._reads: Callable[[Scope], bool] = lambda scope: False
        self._lacks: Callable[[Scope], bool] = lambda scope: False
        self._stale: Callable[[str | None], str | None] = lambda log: None
        self._stale_paths: Container[str] = ()
        self.spans: Spans | None = None
        """Collects spans of passing requests; None if not traced."""
        self._front_ends: Application = health
        self.state = State.STARTING
        self.requests = 0
        """Running requests, without streams."""
        self.streams = 0
        self._waiters: list[asyncio.Event] = []
        """Set whenever a request or stream has ended."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request or WebSocket, including health checks and metrics.

        Code that examines every request belongs here: the head is known, the body is unread, and no front end has been
        chosen yet. (Surplus connections are refused earlier, by `admission`.)"""
        sender = Sender.CLIENT if self.senders is None else self.senders.of(scope)
        head, answering = scope.get(HEAD), self.web.ordinary
        try:
            if sender is Sender.REPLICA:
                answering = unchanged
            elif head is None or head.allowed_by is not self.web:
                answering = self.web.judge(scope)
        except HttpError as error:
            await self._turn_away(scope, receive, send, error)
            return
        if scope["path"] in self._health_paths:
            await self._health(scope, receive, answering(send))
            return
        is_open = self.state is State.OPEN and (self.standing_by is None or self.standing_by() is None)
        application = self._front_ends if is_open else self._while_not_open(scope, sender)
        if application is None:
            await self._not_now(scope, receive, answering(send))
            return
        self._activity.what = scope
        passage = _Passage(self, scope, receive, send, time.perf_counter(), scope["type"] == "websocket")
        if passage.is_stream:
            self.streams += 1
        else:
            self.requests += 1
        try:
            await application(scope, receive, passage.send if answering is unchanged else answering(passage.send))
        finally:
            passage.end()
            for waiter in self._waiters:
                waiter.set()

    def _while_not_open(self, scope: Scope, sender: Sender) -> Application | None:
        """The application that handles a request in the meantime: the local front ends or forwarding. None to refuse
        it.

        A replica forwards only requests of clients, so a request makes at most one hop.
        """
        if self.state is not State.READING:
            return None
        is_read = self._reads(scope)
        is_for_primary = sender is Sender.CLIENT and (not is_read or self._lacks(scope))
        if is_for_primary and self._forwarding is not None and self._forwarding.takes(scope):
            return self._forwarding
        return self._front_ends if is_read and self._is_fresh_for(scope) else None

    def _is_fresh_for(self, scope: Scope) -> bool:
        return scope["path"] in self._stale_paths or self.stale() is None

    async def _not_now(self, scope: Scope, receive: Receive, send: Send) -> None:
        stale = self.stale() if self.state is State.READING and self._reads(scope) else None
        primary = self.primary() if self.state in (State.STARTING, State.READING) else None
        if stale is not None or primary is None or scope["type"] != "http":
            reason = None if primary is not None or self.standing_by is None else self.standing_by()
            why = "" if reason is None else f" ({reason})"
            what = "not the primary" if self.state is State.OPEN else self.state
            detail = stale or f"the server is {what}; try again in a few seconds{why}"
            if self.is_home_away():
                detail = f"the home does not answer; check its database: {stale or f'the server is {what}'}"
            elif primary is not None:
                detail = f"{detail}; ask {primary}"
            await self.refuse(scope, receive, send, detail)
            return
        detail = f"this server is a replica; ask the primary, {primary}"
        named = (b"headwater-primary", primary.encode())
        await answer_in_form(Exchange(scope, receive, send), Problem.of_status(421, detail, named, CLOSE))

    async def _turn_away(self, scope: Scope, receive: Receive, send: Send, error: HttpError) -> None:
        problem = problem_of(error)
        assert problem is not None, error
        self.meter.count(scope.get("method", "WEBSOCKET"), UNMATCHED, problem.status)
        await answer_problem(scope, receive, send, problem)

    async def refuse(self, scope: Scope, receive: Receive, send: Send, detail: str) -> None:
        """Refuse a request temporarily, with the reason."""
        await refuse_unready(scope, receive, send, detail, answer_in_form)

    def passes_always(self, scope: Scope) -> bool:
        """Whether a request is a health check."""
        return scope["path"] in self._health_paths

    def is_for_operators(self, scope: Scope) -> bool:
        """Whether a request is for operators: login, console, management, metrics."""
        return scope["path"][1:].partition("/")[0] in OPERATOR_ROOMS

    def read(
        self,
        front_ends: Application,
        reads: Callable[[Scope], bool],
        stale: Callable[[str | None], str | None],
        stale_paths: Container[str] = (),
        forwarding: Forwarding | None = None,
        lacks: Callable[[Scope], bool] = lambda scope: False,
    ) -> None:
        """Pass read requests (by `reads`) to the front ends, except while everything (None) or the log is `stale`.

        All other requests go to `forwarding`, including reads of a log that this server `lacks`. `stale_paths` always
        go to the front ends, because they report how stale the data is.
        """
        assert self.state is State.STARTING
        self._front_ends, self.state = front_ends, State.READING
        self._reads, self._stale, self._stale_paths = reads, stale, stale_paths
        self._forwarding, self._lacks = forwarding, lacks

    def stale(self, log: str | None = None) -> str | None:
        """Why reads of everything, or of that log, are refused (the copy is too old); None if they are allowed."""
        if self.state is State.OPEN:
            return None if self.standing_by is None else self.standing_by()
        return self._stale(log) if self.state is State.READING else None

    def lacking(self, log: str) -> Exception:
        """The error for a missing log: a replica cannot know whether the log was just created."""
        if self.state is not State.READING:
            return LogNotFound(log)
        if (primary := self.primary()) is not None:
            return AskPrimary(log, primary)
        return StorageUnavailable(reason=f"this replica has no log {show(log)}, and the primary is unknown; try again")

    def is_read(self, scope: Scope) -> bool:
        """Whether the request is a read, so that its answer depends only on the logs."""
        return scope["type"] == "http" and (scope["method"] in ("GET", "HEAD") or self._reads(scope))

    def open(self, front_ends: Application) -> None:
        """Pass requests to the front ends from now on."""
        assert self.state in (State.STARTING, State.READING)
        self._front_ends, self.state = front_ends, State.OPEN

    def stop(self) -> None:
        """Refuse requests from now on; running ones continue."""
        self.state = State.STOPPING

    async def requests_finished(self, timeout_s: float) -> bool:
        """Wait until no request is running. Returns False if some are still running after that time."""
        return await self._wait_until(lambda: not self.requests, timeout_s)

    async def streams_finished(self, timeout_s: float) -> bool:
        """Wait until no stream is running. Returns False if some are still running after that time."""
        return await self._wait_until(lambda: not self.streams, timeout_s)

    async def _wait_until(self, is_over: Callable[[], bool], timeout_s: float) -> bool:
        has_ended = asyncio.Event()
        self._waiters.append(has_ended)
        try:
            async with asyncio.timeout(timeout_s):
                while not is_over():
                    has_ended.clear()
                    await has_ended.wait()
        except TimeoutError:
            return False
        finally:
            self._waiters.remove(has_ended)
        return True


class _Passage(Struct, eq=False):
    """One request passing the gate."""

    gate: Gate
    scope: Scope
    receive: Receive
    forward: Send
    """Sends to the client."""
    began: float
    is_stream: bool
    is_withheld: bool = False
    """Whether the lease expired before the response began, so that its content may be old."""
    has_started: bool = False
    """Whether a response has begun."""
    status: int = 500
    """The response's; this one if the application never sends any."""

    def send(self, message: Message) -> Awaitable[None]:
        if self.is_withheld:
            return _nothing()
        if message["type"] == "http.response.start":
            gate = self.gate
            if gate.has_lapsed is not None and gate.has_lapsed() and gate.is_read(self.scope):
                return self._withhold()
            self.has_started = True
            self.status = message["status"]
            for name, value in message.get("headers", ()):
                if name == b"content-type" and value.startswith(b"text/event-stream"):
                    gate.requests -= 1
                    gate.streams += 1
                    self.is_stream = True
        elif message["type"] == "websocket.accept":
            self.status, self.has_started = 101, True
        return self.forward(message)

    async def _withhold(self) -> None:
        async def passed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.has_started, self.status = True, message["status"]
            await self.forward(message)

        self.is_withheld = True
        detail = "this server's lease expired before the response, which may therefore be outdated; try again"
        await self.gate.refuse(self.scope, self.receive, passed, detail)

    def end(self) -> None:
        gate, scope, duration_s = self.gate, self.scope, time.perf_counter() - self.began
        route = scope.get("route")
        template = route if isinstance(route, str) else getattr(route, "path", UNMATCHED)
        method = scope.get("method", "WEBSOCKET")
        if self.is_stream:
            gate.streams -= 1
            gate.meter.count(method, template, self.status)
        else:
            gate.requests -= 1
            gate.meter.measure(method, template, self.status, duration_s)
        if gate.spans is not None:
            known, status = "" if template == UNMATCHED else template, self.status if self.has_started else 0
            gate.spans.request(scope, known, status, duration_s)


async def _nothing() -> None:
    """Discard the rest of a withheld response."""
