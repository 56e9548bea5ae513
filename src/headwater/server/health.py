"""`/health/live`, `/health/ready` and `/metrics`: how the server is watched.

Health is public and says little. Metrics name logs and consumers, so they need an authenticated user as soon as there
are users: any, or, with `http.metrics_need_right`, one with `metrics:*` or `manage:*`.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from ..core.access import Forbidden, Guard, LoginNotChecked, Right, Unauthenticated, User
from ..formats.problem import Problem
from ..http import JSON, Exchange, Header, Host, Receive, Scope, Send, refuse_websocket
from ..http.errors import InvalidParameter
from ..http.problems import problem_of
from .gate import RETRY
from .metrics import CONTENT_TYPE, ServerCollector, scrape
from .replica import ServerRole, role_asked

LIVE, READY, METRICS = "/health/live", "/health/ready", "/metrics"
HEALTH_PATHS = frozenset({LIVE, READY})
_NO_STORE: Header = (b"cache-control", b"no-store")


class _Page(ABC):
    """What answers GET and HEAD, and says with no more than a status what is wrong."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await refuse_websocket(send)
            return
        exchange = Exchange(scope, receive, send)
        if scope["method"] in ("GET", "HEAD"):
            await self.answer(exchange)
        else:
            await _refuse(exchange, 405, f"{scope['method']} given, GET and HEAD are allowed", (b"allow", b"GET, HEAD"))

    @abstractmethod
    async def answer(self, exchange: Exchange) -> None:
        """Answer it."""


class Health(_Page):
    """The ASGI application behind HEALTH_PATHS; works while the server starts and stops."""

    def __init__(
        self, unready: Callable[[ServerRole], str | None], troubles: Callable[[], Sequence[str]] = tuple
    ) -> None:
        """`unready` says why the server should get no work of that role at the moment, or None.

        `troubles` are what an operator should look at, though it serves: they are told with its being ready.
        """
        self._unready, self._troubles = unready, troubles

    async def answer(self, exchange: Exchange) -> None:
        """Ready or not, or that it lives."""
        if exchange.scope["path"] != READY:
            await exchange.answer(200, b'{"status": "live"}', JSON, (_NO_STORE,))
        elif (role := await _role(exchange)) is None:
            return
        elif (reason := self._unready(role)) is None:
            troubles = self._troubles()
            body = json.dumps({"status": "ready"} | ({"troubles": troubles} if troubles else {})).encode()
            await exchange.answer(200, body, JSON, (_NO_STORE,))
        else:
            await _refuse(exchange, 503, reason, RETRY)


class Metrics(_Page):
    """The ASGI application behind METRICS."""

    def __init__(self, guard: Guard, collector: ServerCollector, *, needs_right: bool = False) -> None:
        """`needs_right`: a user without the right to see them, or to manage the server, is refused."""
        self._host, self._collector, self._needs_right = Host(guard), collector, needs_right

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; it is counted."""
        scope["route"] = METRICS
        await super().__call__(scope, receive, send)

    async def answer(self, exchange: Exchange) -> None:
        """The metrics, to who may see them."""
        try:
            self._check(await self._host.user(exchange))
        except (Unauthenticated, LoginNotChecked, Forbidden) as error:
            problem = problem_of(error)
            assert problem is not None, error
            await exchange.answer_problem(problem)
            return
        body = await asyncio.to_thread(scrape, self._collector)
        await exchange.answer(200, body, CONTENT_TYPE.encode(), (_NO_STORE,))

    def _check(self, user: User) -> None:
        """Raises Forbidden."""
        if self._needs_right and not user.may(Right.MANAGE, "*"):
            self._host.guard.authorize(user, Right.METRICS, "*")


async def _role(exchange: Exchange) -> ServerRole | None:
    """The role that is asked for; None: that was answered."""
    try:
        return role_asked(exchange.scope)
    except InvalidParameter as error:
        await _refuse(exchange, 400, str(error))
        return None


async def _refuse(exchange: Exchange, status: int, detail: str, *headers: Header) -> None:
    await exchange.answer_problem(Problem.of_status(status, detail, _NO_STORE, *headers))
