"""The ASGI application: routes of v1 and v2 under every prefix in use, and their error answers."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from ..core.access import Guard
from ..core.bounded_cache import remembered
from ..core.loop.scheduler import FairScheduler
from ..core.store import LogStore
from ..core.watch.bus import Bus
from ..core.watch.spans import Spans
from ..http import FrontEnd, Scope
from ..http.asgi import raw_path
from ..http.errors import RouteNotFound
from ..http.exchange import as_json
from ..http.front_end import Handler
from ..http.routing import of_method
from . import errors, publishers, subscriptions
from .errors import RequestRefused
from .exchange import TEXT, Exchange
from .host import Host
from .notifications.notification import Dialect
from .service import Service
from .settings import Settings

SCHEMA_TYPE = b"application/schema+json"
PERMISSIVE = "accepted-"
"""The name prefix of schemas that include every accepted spelling."""


def _schemas() -> Mapping[str, bytes]:
    found = files(__package__).joinpath("schemas").iterdir()
    return {file.name.removesuffix(".json"): file.read_bytes() for file in sorted(found, key=lambda file: file.name)}


def _document(schemas: Mapping[str, bytes]) -> bytes:
    """The OpenAPI document with the schemas embedded.

    The lenient schemas are left out: no client can be generated from a schema with several spellings.
    """
    document: dict[str, Any] = json.loads(files(__package__).joinpath("openapi.json").read_bytes())
    parts = {name: json.loads(text) for name, text in schemas.items() if not name.startswith(PERMISSIVE)}
    for part in parts.values():
        del part["$schema"], part["$id"]
    document["components"] = {"schemas": parts}
    return json.dumps(document).encode()


SCHEMAS = _schemas()
"""The schemas by name: `accepted-...` and `...-request-...` describe input, the others output."""
OPENAPI = _document(SCHEMAS)


async def openapi(host: Host, exchange: Exchange) -> None:
    """GET /openapi.json"""
    await exchange.answer(200, OPENAPI)


async def schema_names(host: Host, exchange: Exchange) -> None:
    """GET /schemas"""
    await exchange.answer(200, as_json(list(SCHEMAS)))


async def schema(host: Host, exchange: Exchange) -> None:
    """GET /schemas/{name}"""
    name = exchange.arguments[0].removesuffix(".json")
    if name not in SCHEMAS:
        raise RequestRefused(404, f"no such schema; the schemas are {', '.join(SCHEMAS)}")
    await exchange.answer(200, SCHEMAS[name], SCHEMA_TYPE)


BODY_BYTES_MIN = 1024 * 1024
"""The smallest body limit: a batch, or an event with much white space, may exceed the largest event."""
PREFIXES = (("api", "ocloudnotifications"), ("ocloudnotifications",), ("api", "cloudnotifications"))
"""The path before the version, in lower case: OpenShift's, O-RAN's, and a misspelling in use."""
ROOMS = ("api", "ocloudnotifications", "health")
"""First segments of the paths served here, in lower case; matched in any case."""
CURRENT_STATE = "currentstate"

_logger = logging.getLogger("headwater.cne")


class Route(NamedTuple):
    """A path below the version, in lower case; `{id}` is a parameter."""

    path: str
    handlers: dict[str, Handler[Host, Exchange]]
    says_why: bool = True
    """Whether errors have a body in v2; on O-RAN's own routes they have none."""


class Way(NamedTuple):
    """The route to which a path leads."""

    pattern: str
    """The label under which its requests are counted in metrics."""
    route: Route | None
    dialect: Dialect = Dialect.V2
    """The dialect of its answers, including 404s."""
    base: str = ""
    """The path up to the version, as the client wrote it."""
    arguments: Sequence[str] = ()
    """The values of the route's parameters."""


_NOWHERE = Way("", None)


class Application(FrontEnd[Host, Exchange]):
    """The O-Cloud notification API over the logs of one store, on one event loop: see FrontEnd.

    `stop` does not end delivery; call `close` before the store closes.
    """

    def __init__(
        self,
        store: LogStore,
        guard: Guard,
        settings: Settings | None = None,
        *,
        bus: Bus | None = None,
        turns: FairScheduler | None = None,
        spans: Spans | None = None,
    ) -> None:
        """`guard` checks permissions. `bus` gets notifications of webhooks that fail and recover; `turns` schedules the
        time.

        `spans` gets the webhook calls, if they are collected.
        """
        settings = settings or Settings()
        self.service = Service(store, settings, bus or Bus(), turns, spans)
        self._body_bytes_max = max(BODY_BYTES_MIN, 2 * settings.event_bytes_max)
        super().__init__(Host(self.service, guard), self._handler, _logger, Exchange)

    async def start(self) -> None:
        """Load the registered subscriptions and publishers, and resume delivery."""
        await self.service.start()

    async def close(self) -> None:
        """Stop delivering, and save all positions."""
        await self.service.close()

    async def refuse(self, exchange: Exchange, error: Exception) -> None:
        """See FrontEnd. O-RAN's own routes of v2 give the reason only in a header field."""
        refused = errors.refusal_of(error)
        if refused is None or refused.status == 500:
            _logger.exception("%s %s failed: internal error", exchange.scope["method"], exchange.scope["path"])
        refused = refused or RequestRefused(500, "internal error; see the server's log")
        exchange.check_unanswered(refused.detail)
        headers = (*refused.headers, refused.to_header())
        if exchange.dialect is Dialect.V1 or exchange.says_why:
            await exchange.answer(refused.status, refused.to_json(), headers=headers)
        else:
            await exchange.answer_empty(refused.status, headers)

    def _handler(self, exchange: Exchange) -> Handler[Host, Exchange]:
        exchange.body_bytes_max = self._body_bytes_max
        return _find(exchange)


async def _move(host: Host, exchange: Exchange) -> None:
    await exchange.answer_empty(301, ((b"location", _cleaned(exchange.scope)),))


def _find(exchange: Exchange) -> Handler[Host, Exchange]:
    """The handler of a request. Raises RouteNotFound, MethodNotAllowed.

    Sets `scope["route"]` to the route's pattern, under which the request is counted.
    """
    scope = exchange.scope
    path = raw_path(scope)
    if "//" in path:
        return _move
    pattern, route, exchange.dialect, exchange.base, exchange.arguments = _way_of(path)
    if route is None:
        raise RouteNotFound(scope["path"])
    scope["route"] = pattern
    handler = of_method(route.handlers, scope["method"])
    exchange.says_why = route.says_why
    return handler


@remembered(1024)
def _way_of(path: str) -> Way:
    """The route to which a path leads."""
    segments = _segments(path)
    if segments is None:
        return _NOWHERE
    lowered = [segment.lower() for segment in segments]
    if lowered == ["health"]:
        return Way("/health", _ROOT_HEALTH)
    prefix = next((each for each in PREFIXES if tuple(lowered[: len(each)]) == each), None)
    if prefix is None:
        return _NOWHERE
    rest = lowered[len(prefix) :]
    if rest in (["api_versions"], ["apiversions"]):
        return Way("/ocloudNotifications/api_versions", _VERSIONS)
    if not rest or rest[0] not in ("v1", "v2"):
        return _NOWHERE
    base = "".join(f"/{segment}" for segment in segments[: len(prefix) + 1])
    return _way_below(segments[len(prefix) + 1 :], rest[1:], Dialect(rest[0]), base)


def _way_below(segments: list[str], lowered: list[str], dialect: Dialect, base: str) -> Way:
    counted = f"/ocloudNotifications/{dialect}"
    if len(lowered) > 1 and lowered[-1] == CURRENT_STATE:
        resource = "/" + "/".join(segments[:-1])
        return Way(f"{counted}/{{ResourceAddress}}/CurrentState", _CURRENT_STATE, dialect, base, (resource,))
    for route in ROUTES:
        pattern = route.path.split("/")
        if len(pattern) == len(lowered) and all(
            wanted in (given, "{id}") for wanted, given in zip(pattern, lowered, strict=True)
        ):
            given = [segment for wanted, segment in zip(pattern, segments, strict=True) if wanted == "{id}"]
            return Way(f"{counted}/{route.path}", route, dialect, base, tuple(given))
    return _NOWHERE._replace(dialect=dialect)


def _segments(path: str) -> list[str] | None:
    """The path's segments, each decoded; a trailing slash is ignored. None if it is not UTF-8."""
    try:
        return [unquote_to_bytes(segment).decode() for segment in path.strip("/").split("/")]
    except UnicodeDecodeError:
        return None


def _cleaned(scope: Scope) -> bytes:
    """The path without empty segments, to redirect to, and its query."""
    segments = [segment for segment in raw_path(scope).split("/") if segment]
    query: bytes = scope.get("query_string", b"")
    return ("/" + "/".join(segments)).encode("latin-1") + (b"?" + query if query else b"")


async def _health(host: Host, exchange: Exchange) -> None:
    await exchange.answer(200, b"OK", TEXT)


async def _root_health(host: Host, exchange: Exchange) -> None:
    await exchange.answer(200, as_json({"health": True}))


async def _versions(host: Host, exchange: Exchange) -> None:
    await exchange.answer(200, as_json({"SubscriptionVersion": [dialect.value for dialect in Dialect]}))


async def _dummy(host: Host, exchange: Exchange) -> None:
    """An endpoint that accepts everything, for clients' tests. It does not read the body."""
    await exchange.answer_empty(204)


_ROOT_HEALTH = Route("health", {"GET": _root_health})
_VERSIONS = Route("api_versions", {"GET": _versions})
_CURRENT_STATE = Route("{ResourceAddress}/currentstate", {"GET": subscriptions.current_state}, says_why=False)
ROUTES = (
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
            "GET": publishers.list_publishers,
            "POST": publishers.create_publisher,
            "DELETE": publishers.delete_own_publishers,
        },
    ),
    Route("publishers/{id}", {"GET": publishers.get_publisher, "DELETE": publishers.delete_publisher}),
    Route("create/event", {"POST": publishers.create_event}),
    Route("log", {"POST": publishers.write_diary}),
    Route("dummy", {"POST": _dummy}),
    Route("dummy2", {"POST": _dummy}),
    Route("openapi.json", {"GET": openapi}),
    Route("schemas", {"GET": schema_names}),
    Route("schemas/{id}", {"GET": schema}),
)
