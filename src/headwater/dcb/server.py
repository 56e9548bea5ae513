"""The ASGI application: routes, and the frame around every handler (stopping, errors, a client that went away)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from importlib.resources import files

from ..core.access import Guard
from ..core.errors import EventLogError
from ..core.store import LogStore
from ..formats.problem import MEDIA_TYPE, Problem
from . import appending, consumers, errors, logs, reading, subscribing, suite
from .exchange import Exchange, Receive, Scope, Send
from .host import Host
from .routing import Routes

BODY_BYTES_MAX = 96 * 1024 * 1024
"""An append takes 64 MiB; base64 makes four bytes of three, and JSON adds its own."""

_logger = logging.getLogger("headwater.dcb")
_OPENAPI = files(__package__).joinpath("openapi.yaml").read_bytes()

Handler = Callable[[Host, Exchange], Awaitable[None]]


class Application:
    """DCB over HTTP for the logs of one store, on one event loop.

    Call `stop` before the HTTP server waits for its connections to end, and `close` after that.
    """

    def __init__(self, store: LogStore, guard: Guard, *, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._host = Host(store, guard)
        self._body_bytes_max = body_bytes_max
        self.routes = _routes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3. The `lifespan` of a server of its own stops and closes it; who mounts it must do so."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            raise RuntimeError(f"{scope['type']} is not served here")

    def stop(self) -> None:
        """End the subscriptions in order, and refuse new requests with 503."""
        self._host.stop()

    def close(self) -> None:
        """Let go of the logs, which stay open."""
        self._host.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, (), self._body_bytes_max)
        try:
            handler, exchange.arguments = self.routes.find(scope)
            if self._host.stopping.is_set():
                raise errors.stopping()
            if handler not in _WITH_PARAMETERS:
                exchange.parameters()  # allows none, so that `?limit=1` never passes in silence
            await handler(self._host, exchange)
        except errors.Disconnected:
            return
        except EventLogError as error:
            problem = errors.problem_of(error)
            if problem.status == 500:
                _logger.error("%s %s: %s", scope["method"], scope["path"], error)
            await _refuse(exchange, problem)
        except errors.RequestRefused as refused:
            await _refuse(exchange, refused.problem)
        except Exception:
            _logger.exception("%s %s failed", scope["method"], scope["path"])
            await _refuse(exchange, errors.INTERNAL)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                self.stop()
                self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _refuse(exchange: Exchange, problem: Problem) -> None:
    """Answer with a problem; an answer that has begun is broken off instead, so that nobody takes it for whole."""
    if exchange.has_started:
        raise RuntimeError(f"the answer broke off: {problem.detail}")
    await exchange.answer(problem.status, problem.to_json(), MEDIA_TYPE.encode(), problem.headers)


async def _openapi(host: Host, exchange: Exchange) -> None:
    await exchange.answer(200, _OPENAPI, b"application/yaml")


def _routes() -> Routes[Handler]:
    routes: Routes[Handler] = Routes()
    for method, path, handler in _TABLE:
        routes.add(method, path, handler)
    return routes


_CONSUMER = "/logs/{log}/consumers/{owner}/{component}"
_TABLE: list[tuple[str, str, Handler]] = [
    ("GET", "/openapi.yaml", _openapi),
    ("GET", "/logs", logs.list_logs),
    ("GET", "/logs/{log}", logs.get),
    ("PUT", "/logs/{log}", logs.create),
    ("PATCH", "/logs/{log}", logs.change),
    ("DELETE", "/logs/{log}", logs.delete),
    ("POST", "/logs/{log}/append", appending.append),
    ("POST", "/logs/{log}/events", appending.append_cloudevents),
    ("POST", "/logs/{log}/read", reading.read),
    ("GET", "/logs/{log}/head", reading.head),
    ("GET", "/logs/{log}/subscribe", subscribing.subscribe),
    ("POST", "/logs/{log}/trim", logs.trim),
    ("GET", "/logs/{log}/consumers", consumers.list_consumers),
    ("PUT", _CONSUMER, consumers.register),
    ("DELETE", _CONSUMER, consumers.unregister),
    ("POST", f"{_CONSUMER}/acknowledge", consumers.acknowledge),
    ("POST", f"{_CONSUMER}/reset", consumers.reset),
    ("GET", "/dcb/{log}/read", suite.read),
    ("POST", "/dcb/{log}/append", suite.append),
]

_WITH_PARAMETERS = frozenset({appending.append, subscribing.subscribe, suite.read})
"""The handlers that look at query parameters themselves."""


def application(store: LogStore, guard: Guard, *, body_bytes_max: int = BODY_BYTES_MAX) -> Application:
    """The ASGI application for the logs of a store; `guard` says who may do what.

    A request body over `body_bytes_max` is refused with 413 and not read on.
    """
    return Application(store, guard, body_bytes_max=body_bytes_max)
