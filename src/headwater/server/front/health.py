"""`/health/live` and `/health/ready`: liveness and readiness checks. They are public and reveal little."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import StrEnum
from urllib.parse import parse_qs

from ...formats.problem import Problem
from ...http import JSON, Exchange, Header, Receive, Scope, Send, refuse_websocket
from ...http.errors import UNREADY_RETRY, InvalidParameter

LIVE, READY, METRICS = "/health/live", "/health/ready", "/metrics"
HEALTH_PATHS = frozenset({LIVE, READY})
NO_STORE: Header = (b"cache-control", b"no-store")


class ServerRole(StrEnum):
    """The role a load balancer may ask for."""

    PRIMARY = "primary"
    REPLICA = "replica"
    ANY = "any"
    """Accepts either role, because a replica forwards requests that only the primary can answer."""


class Page(ABC):
    """Answers GET and HEAD, and reports errors by status only."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await refuse_websocket(send)
            return
        exchange = Exchange(scope, receive, send)
        if scope["method"] in ("GET", "HEAD"):
            await self.answer(exchange)
        else:
            await _refuse(
                exchange, 405, f"{scope['method']} is not allowed here; allowed: GET, HEAD", (b"allow", b"GET, HEAD")
            )

    @abstractmethod
    async def answer(self, exchange: Exchange) -> None:
        """Answer it."""


class Health(Page):
    """The ASGI application behind HEALTH_PATHS; works while the server starts and stops."""

    def __init__(
        self, unready: Callable[[ServerRole], str | None], troubles: Callable[[], Sequence[str]] = tuple
    ) -> None:
        """`unready` returns why the server should currently get no work in that role, or None.

        `troubles` are problems for an operator while the server still serves; they are listed in a ready answer.
        """
        self._unready, self._troubles = unready, troubles

    async def answer(self, exchange: Exchange) -> None:
        """Respond whether the server is ready or live."""
        if exchange.scope["path"] != READY:
            await exchange.answer(200, b'{"status": "live"}', JSON, (NO_STORE,))
        elif (role := await _role(exchange)) is None:
            return
        elif (reason := self._unready(role)) is None:
            troubles = self._troubles()
            body = json.dumps({"status": "ready"} | ({"troubles": troubles} if troubles else {})).encode()
            await exchange.answer(200, body, JSON, (NO_STORE,))
        else:
            await _refuse(exchange, 503, reason, UNREADY_RETRY)


def role_asked(scope: Scope) -> ServerRole:
    """The role that `/health/ready` asks about; the primary by default. Raises InvalidParameter."""
    given = parse_qs(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True).get("role")
    if given is None:
        return ServerRole.PRIMARY
    try:
        return ServerRole(given[-1])
    except ValueError:
        raise InvalidParameter("role", f"expected primary, replica or any, got {given[-1][:80]!r}") from None


async def _role(exchange: Exchange) -> ServerRole | None:
    """The requested role; None if an error response was sent."""
    try:
        return role_asked(exchange.scope)
    except InvalidParameter as error:
        await _refuse(exchange, 400, str(error))
        return None


async def _refuse(exchange: Exchange, status: int, detail: str, *headers: Header) -> None:
    await exchange.answer_problem(Problem.of_status(status, detail, NO_STORE, *headers))
