"""Which handler serves a path: a tree of path segments, walked once per request.

Segments are split before they are percent-decoded, so that a consumer's name may contain a slash (`%2F`).
"""

from __future__ import annotations

from typing import Generic, TypeVar
from urllib.parse import quote, unquote_to_bytes

from . import errors
from .exchange import Scope

Handler = TypeVar("Handler")


class Routes(Generic[Handler]):
    """Handlers by path and method."""

    def __init__(self) -> None:
        self._root = _Node[Handler]()
        self.patterns: list[tuple[str, str]] = []
        """Every (method, path) that was added; what the OpenAPI document must cover."""

    def add(self, method: str, path: str, handler: Handler) -> None:
        """Serve `path`, whose segments in braces are parameters."""
        node = self._root
        for segment in path.split("/")[1:]:
            if segment.startswith("{"):
                node.any = node = node.any or _Node[Handler]()
            else:
                node = node.named.setdefault(segment, _Node[Handler]())
        node.path = path
        node.handlers[method] = handler
        self.patterns.append((method, path))

    def find(self, scope: Scope) -> tuple[Handler, list[str]]:
        """The handler of a request, and its path parameters. Raises RequestRefused (404, 405).

        `scope["route"]` becomes the path as it was added: what the request is counted under.
        """
        node = self._root
        arguments: list[str] = []
        for segment in _segments(scope):
            if (following := node.named.get(segment)) is not None:
                node = following
            elif node.any is not None and segment:
                arguments.append(_decoded(segment))
                node = node.any
            else:
                raise errors.route_not_found(scope["path"])
        if not node.handlers:
            raise errors.route_not_found(scope["path"])
        scope["route"] = node.path
        handler = node.handlers.get(scope["method"])
        if handler is None:
            raise errors.method_not_allowed(scope["method"], node.handlers)
        return handler, arguments


class _Node(Generic[Handler]):
    __slots__ = ("any", "handlers", "named", "path")

    def __init__(self) -> None:
        self.named: dict[str, _Node[Handler]] = {}
        self.any: _Node[Handler] | None = None
        self.handlers: dict[str, Handler] = {}
        self.path = ""


def _segments(scope: Scope) -> list[str]:
    raw: bytes | None = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.partition(b"?")[0].decode("latin-1")
    return path.removeprefix(scope.get("root_path", "")).split("/")[1:]


def _decoded(segment: str) -> str:
    if "%" not in segment:
        return segment
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise errors.invalid_parameter("path", f"{segment[:80]!r} does not percent-decode to UTF-8") from None
