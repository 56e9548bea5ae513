"""`/health/live`, `/health/ready` and `/metrics`: how the server is watched.

Health is public and says little. Metrics name logs and consumers, so they need an authenticated user - any - as soon
as there are users.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus

from ..core.access import Guard, Unauthenticated
from ..dcb import authenticate
from .gate import Receive, Scope, Send
from .metrics import CONTENT_TYPE, ServerCollector, scrape

LIVE, READY, METRICS = "/health/live", "/health/ready", "/metrics"
HEALTH_PATHS = frozenset({LIVE, READY})


class Health:
    """The ASGI application behind HEALTH_PATHS; works while the server starts and stops."""

    def __init__(self, unready: Callable[[], str | None]) -> None:
        """`unready` says why the server should get no work at the moment, or None."""
        self._unready = unready

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if not await _is_get(scope, send):
            return
        if scope["path"] == READY and (reason := self._unready()) is not None:
            await _problem(send, HTTPStatus.SERVICE_UNAVAILABLE, reason, ("retry-after", "5"))
        else:
            status = "ready" if scope["path"] == READY else "live"
            await _answer(send, HTTPStatus.OK, "application/json", json.dumps({"status": status}).encode())


class Metrics:
    """The ASGI application behind METRICS."""

    def __init__(self, guard: Guard, collector: ServerCollector) -> None:
        self._guard, self._collector = guard, collector

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        scope["route"] = METRICS
        if not await _is_get(scope, send):
            return
        try:
            header = next((value for name, value in scope["headers"] if name == b"authorization"), None)
            await authenticate(self._guard, header, (scope.get("client") or ("",))[0])
        except Unauthenticated as error:
            challenge = ("www-authenticate", 'Basic realm="headwater", charset="UTF-8"')
            await _problem(send, HTTPStatus.UNAUTHORIZED, str(error), challenge)
            return
        body = await asyncio.to_thread(scrape, self._collector)
        await _answer(send, HTTPStatus.OK, CONTENT_TYPE, body)


async def _is_get(scope: Scope, send: Send) -> bool:
    if scope["type"] != "http":
        await send({"type": "websocket.close", "code": 1008, "reason": "no WebSocket is served here"})
        return False
    if scope["method"] not in ("GET", "HEAD"):
        detail = f"{scope['method']} given, GET and HEAD are allowed"
        await _problem(send, HTTPStatus.METHOD_NOT_ALLOWED, detail, ("allow", "GET, HEAD"))
        return False
    return True


async def _problem(send: Send, status: HTTPStatus, detail: str, *headers: tuple[str, str]) -> None:
    problem = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail}
    await _answer(send, status, "application/problem+json", json.dumps(problem).encode(), *headers)


async def _answer(send: Send, status: HTTPStatus, content_type: str, body: bytes, *headers: tuple[str, str]) -> None:
    pairs = [
        ("content-type", content_type),
        ("content-length", str(len(body))),
        ("cache-control", "no-store"),
        *headers,
    ]
    encoded = [(name.encode(), value.encode()) for name, value in pairs]
    await send({"type": "http.response.start", "status": status.value, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
