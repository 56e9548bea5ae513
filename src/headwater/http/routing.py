"""Routing of paths to handlers: a tree of path segments, with a cache of recent paths.

Segments are split before they are percent-decoded, so that a consumer's name may contain a slash (`%2F`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes

from .asgi import path_below, written_path
from .errors import InvalidParameter, MethodNotAllowed, RouteNotFound
from .exchange import BODY_BYTES_MAX, Exchange

Handler = TypeVar("Handler")
T = TypeVar("T")

KNOWN_MAX, KNOWN_CHARS_MAX = 1024, 256
"""The number of cached paths, and the maximum length of a cached path."""


def of_method(routes: Mapping[str, T], method: str) -> T:
    """The entry for a method among a resource's entries by method. Raises MethodNotAllowed.

    HEAD exists wherever GET does (RFC 9110, 9.3.2): it is handled as GET, and Exchange omits the body.
    """
    route = routes.get(method)
    if route is None and method == "HEAD":
        route = routes.get("GET")
    if route is None:
        raise MethodNotAllowed(method, {*routes, "HEAD"} if "GET" in routes else routes)
    return route


class Route(NamedTuple, Generic[Handler]):
    """The handling of one method on one path. Its limits are declared here, before a request is read."""

    handler: Handler
    body_bytes_max: int
    has_parameters: bool
    """Whether the handler reads query parameters; otherwise none is allowed."""


class Routes(Generic[Handler]):
    """Handlers by path and method."""

    def __init__(self) -> None:
        self._root = _Node[Handler]()
        self._known = lru_cache(KNOWN_MAX)(self._walk)
        self.patterns: list[tuple[str, str]] = []
        """Every added (method, path): what an OpenAPI document must cover."""

    def add(
        self,
        method: str,
        path: str,
        handler: Handler,
        *,
        body_bytes_max: int = BODY_BYTES_MAX,
        has_parameters: bool = False,
    ) -> None:
        """Serve `path`, whose segments in braces are parameters. See Route."""
        node = self._root
        for segment in path.split("/")[1:]:
            if segment.startswith("{"):
                node.any = node = node.any or _Node[Handler]()
            else:
                node = node.named.setdefault(segment, _Node[Handler]())
        node.path = path
        node.routes[method] = Route(handler, body_bytes_max, has_parameters)
        self.patterns.append((method, path))

    def find(self, exchange: Exchange) -> Handler:
        """The handler of a request; the request gets its route's arguments and limits.

        Sets `scope["route"]` to the path as it was added, under which the request is counted. Raises RouteNotFound,
        MethodNotAllowed, InvalidParameter.
        """
        scope = exchange.scope
        written = scope.get("raw_path") or written_path(scope)
        walk = self._known if len(written) <= KNOWN_CHARS_MAX else self._walk
        node, arguments = walk(written, scope.get("root_path", ""))
        if node is None:
            raise RouteNotFound(scope["path"])
        scope["route"] = node.path
        route = node.routes.get(scope["method"]) or of_method(node.routes, scope["method"])
        exchange.arguments, exchange.body_bytes_max = arguments, route.body_bytes_max
        if scope.get("query_string") and not route.has_parameters:
            exchange.parameters()  # allows no parameters, so that `?limit=1` is never ignored silently
        return route.handler

    def _walk(self, written: bytes, root: str) -> tuple[_Node[Handler] | None, Sequence[str]]:
        """The node to which a path below `root` leads, if any, and the values of its path parameters."""
        node = self._root
        arguments: list[str] = []
        for segment in path_below(root, written).split("/")[1:]:
            if (following := node.named.get(segment)) is not None:
                node = following
            elif node.any is not None and segment:
                arguments.append(_decoded(segment))
                node = node.any
            else:
                return None, ()
        return (node if node.routes else None), tuple(arguments)


class _Node(Generic[Handler]):
    __slots__ = ("any", "named", "path", "routes")

    def __init__(self) -> None:
        self.named: dict[str, _Node[Handler]] = {}
        self.any: _Node[Handler] | None = None
        self.routes: dict[str, Route[Handler]] = {}
        self.path = ""


def _decoded(segment: str) -> str:
    if "%" not in segment:
        return segment
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise InvalidParameter("path", f"{segment[:80]!r} does not percent-decode to UTF-8") from None
