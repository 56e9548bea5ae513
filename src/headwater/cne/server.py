"""The ASGI application: routes of v1 and v2 under every prefix in the field, and the frame around every handler."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from ..core.access import Guard
from ..core.bus import Bus
from ..core.store import LogStore
from . import documents, errors, publishing, subscriptions
from .errors import Refused
from .exchange import TEXT, Exchange, Receive, Scope, Send
from .host import Authenticate, Host
from .notification import Dialect
from .service import Service
from .settings import Settings

BODY_BYTES_MIN = 1024 * 1024
"""A batch, and an event with much white space, may be larger than the largest event."""
PREFIXES = (("api", "ocloudnotifications"), ("ocloudnotifications",), ("api", "cloudnotifications"))
"""What comes before the version, in lower case: OpenShift's, O-RAN's, and a misspelling that is in the field."""
ROOMS = ("api", "ocloudNotifications", "ocloudnotifications", "health")
"""First segments of the paths that are served here."""
CURRENT_STATE = "currentstate"

_logger = logging.getLogger("headwater.cne")

Handler = Callable[[Host, Exchange], Awaitable[None]]


class Route(NamedTuple):
    """A path below the version, in lower case; `{id}` is a parameter."""

    path: str
    handlers: dict[str, Handler]
    says_why: bool = True
    """Whether an error has a body in v2: on O-RAN's own routes it has none."""


class Application:
    """The O-Cloud notification API over the logs of one store, on one event loop.

    Call `start` before the first request, `stop` when no more are to be taken, and `close` before the store closes.
    """

    def __init__(self, store: LogStore, guard: Guard, authenticate: Authenticate, settings: Settings, bus: Bus) -> None:
        self.service = Service(store, settings, bus)
        self._host = Host(self.service, guard, authenticate)
        self._body_bytes_max = max(BODY_BYTES_MIN, 2 * settings.event_bytes_max)

    async def start(self) -> None:
        """Load what is registered, and go on delivering."""
        await self.service.start()

    def stop(self) -> None:
        """Refuse new requests with 503; delivery goes on."""
        self._host.stopping.set()

    async def close(self) -> None:
        """Stop delivering, and write down where everybody stands."""
        await self.service.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI 3. The `lifespan` of a server of its own starts and closes it; who mounts it must do so."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": "no WebSocket is served here"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, self._body_bytes_max)
        says_why = False
        try:
            if _has_empty_segments(scope):
                await exchange.answer(301, headers=((b"location", _cleaned(scope)),))
                return
            handler, says_why = _find(exchange)
            if self._host.stopping.is_set():
                raise errors.stopping()
            await handler(self._host, exchange)
        except errors.Disconnected:
            return
        except Exception as error:
            refused = errors.refusal_of(error)
            if refused is None or refused.status == 500:
                _logger.exception("%s %s failed", scope["method"], scope["path"])
            await _refuse(exchange, refused or Refused(500, "the server has a fault; its log says more"), says_why)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                self.stop()
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _refuse(exchange: Exchange, refused: Refused, says_why: bool) -> None:
    if exchange.has_started:
        raise RuntimeError(f"the answer broke off: {refused.detail}")
    headers = (*refused.headers, refused.to_header())
    has_body = exchange.dialect is Dialect.V1 or says_why
    await exchange.answer(refused.status, refused.to_json() if has_body else b"", headers=headers)


def _find(exchange: Exchange) -> tuple[Handler, bool]:
    """The handler of a request, and whether its errors have a body. Raises Refused (404, 405).

    `scope["route"]` becomes the route's pattern: what the request is counted under.
    """
    scope = exchange.scope
    segments = _segments(scope)
    for route, its in _route_of(exchange, segments):
        scope["route"] = route
        handler = its.handlers.get(scope["method"])
        if handler is None:
            raise errors.method_not_allowed(scope["method"], its.handlers)
        return handler, its.says_why
    raise errors.not_found(scope["path"])


def _route_of(exchange: Exchange, segments: list[str]) -> list[tuple[str, Route]]:
    """The route of a path, if there is one, with the pattern that it is counted under."""
    lowered = [segment.lower() for segment in segments]
    if lowered == ["health"]:
        return [("/health", _ROOT_HEALTH)]
    prefix = next((each for each in PREFIXES if tuple(lowered[: len(each)]) == each), None)
    if prefix is None:
        return []
    rest = lowered[len(prefix) :]
    if rest in (["api_versions"], ["apiversions"]):
        return [("/ocloudNotifications/api_versions", _VERSIONS)]
    if not rest or rest[0] not in ("v1", "v2"):
        return []
    exchange.dialect = Dialect(rest[0])
    exchange.base = "".join(f"/{segment}" for segment in segments[: len(prefix) + 1])
    return _route_below(exchange, segments[len(prefix) + 1 :], rest[1:], f"/ocloudNotifications/{rest[0]}")


def _route_below(exchange: Exchange, segments: list[str], lowered: list[str], base: str) -> list[tuple[str, Route]]:
    if len(lowered) > 1 and lowered[-1] == CURRENT_STATE:
        exchange.arguments = ["/" + "/".join(segments[:-1])]
        return [(f"{base}/{{ResourceAddress}}/CurrentState", _CURRENT_STATE)]
    for its in _ROUTES:
        pattern = its.path.split("/")
        if len(pattern) == len(lowered) and all(
            wanted in (given, "{id}") for wanted, given in zip(pattern, lowered, strict=True)
        ):
            exchange.arguments = [
                segment for wanted, segment in zip(pattern, segments, strict=True) if wanted == "{id}"
            ]
            return [(f"{base}/{its.path}", its)]
    return []


def _segments(scope: Scope) -> list[str]:
    """The segments of the path, decoded one by one; a slash at the end does not count. Raises Refused (404)."""
    try:
        return [unquote_to_bytes(segment).decode() for segment in _raw_path(scope).strip("/").split("/")]
    except UnicodeDecodeError:
        raise errors.not_found(scope["path"]) from None


def _raw_path(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.partition(b"?")[0].decode("latin-1")
    return path.removeprefix(scope.get("root_path", ""))


def _has_empty_segments(scope: Scope) -> bool:
    return "//" in _raw_path(scope)


def _cleaned(scope: Scope) -> bytes:
    """The path without empty segments, to which such a request is sent, and its query."""
    segments = [segment for segment in _raw_path(scope).split("/") if segment]
    query: bytes = scope.get("query_string", b"")
    return ("/" + "/".join(segments)).encode("latin-1") + (b"?" + query if query else b"")


async def _health(host: Host, exchange: Exchange) -> None:
    await exchange.answer(200, b"OK", TEXT)


async def _root_health(host: Host, exchange: Exchange) -> None:
    await exchange.answer_json(200, {"health": True})


async def _versions(host: Host, exchange: Exchange) -> None:
    await exchange.answer_json(200, {"SubscriptionVersion": [dialect.value for dialect in Dialect]})


async def _dummy(host: Host, exchange: Exchange) -> None:
    """An endpoint that takes everything, for the tests of others."""
    await exchange.body()
    await exchange.answer(204)


_ROOT_HEALTH = Route("health", {"GET": _root_health})
_VERSIONS = Route("api_versions", {"GET": _versions})
_CURRENT_STATE = Route("{ResourceAddress}/currentstate", {"GET": subscriptions.current_state}, says_why=False)
_ROUTES = (
    Route("health", {"GET": _health}, says_why=False),
    Route(
        "subscriptions",
        {"GET": subscriptions.list_all, "POST": subscriptions.create, "DELETE": subscriptions.delete_own},
        says_why=False,
    ),
    Route("subscriptions/{id}", {"GET": subscriptions.get, "DELETE": subscriptions.delete}, says_why=False),
    Route("subscriptions/status/{id}", {"PUT": subscriptions.ping}),
    Route("subscriptions/{id}/delivery", {"GET": subscriptions.delivery}),
    Route("subscriptions/{id}/resume", {"POST": subscriptions.resume}),
    Route(
        "publishers",
        {
            "GET": publishing.list_publishers,
            "POST": publishing.create_publisher,
            "DELETE": publishing.delete_own_publishers,
        },
    ),
    Route("publishers/{id}", {"GET": publishing.get_publisher, "DELETE": publishing.delete_publisher}),
    Route("create/event", {"POST": publishing.create_event}),
    Route("log", {"POST": publishing.write_diary}),
    Route("dummy", {"POST": _dummy}),
    Route("dummy2", {"POST": _dummy}),
    Route("openapi.json", {"GET": documents.openapi}),
    Route("schemas", {"GET": documents.schema_names}),
    Route("schemas/{id}", {"GET": documents.schema}),
)


def application(
    store: LogStore,
    guard: Guard,
    authenticate: Authenticate,
    settings: Settings | None = None,
    *,
    bus: Bus | None = None,
) -> Application:
    """The ASGI application; `guard` says who may do what, `authenticate` who somebody is.

    `bus` is told of webhooks that fail and recover.
    """
    return Application(store, guard, authenticate, settings or Settings(), bus or Bus())
