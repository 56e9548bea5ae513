"""What the server can be made to do, as its own tables say it: routes, operations, functions, frames, calls, jobs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import headwater
from headwater.amqp.protocol import performatives, sasl
from headwater.amqp.protocol.composite import Composite
from headwater.cne import server as cne
from headwater.console import server as console
from headwater.core.access import OpenGuard
from headwater.dcb.server import Application as Dcb
from headwater.flight import wire
from headwater.futoin.functions.push import Pushing
from headwater.futoin.server import handlers
from headwater.management import server as management
from headwater.management.entities import TYPES
from headwater.management.operations import Management
from headwater.server.bulk.calls import BulkCalls
from headwater.server.front import health
from headwater.server.replicas import frame_push
from headwater.storage.memory import MemoryStore

SOURCES = Path(headwater.__file__).parent
OTHER_PROCESSES = ("cli", "client", "decisions", "eventsourcing", "spark")
"""Rooms that run in no server."""
_BEGINS = {"create_task", "ensure_future", "call_later", "call_at", "task", "run_in_executor"}
"""What begins something that goes on by itself on an event loop: `task` is that of `Threads`."""
FRAMES = ("Open", "Begin", "Attach", "Flow", "Transfer", "Disposition", "Detach", "End", "Close")


def routes() -> set[str]:
    """Of HTTP and WebSocket."""
    dcb = {f"{method} {path}" for method, path in Dcb(MemoryStore(), OpenGuard()).routes.patterns}
    clouds = {f"{method} {route.path}" for route in cne.ROUTES for method in route.handlers}
    return {
        *dcb,
        *(f"{method} {path}" for method, path, _ in (*console._TABLE, *management._TABLE)),
        *(f"cne {each}" for each in clouds),
        f"cne GET {cne._CURRENT_STATE.path}",
        "cne GET api_versions",
        *(f"GET {path}" for path in (health.LIVE, health.READY, health.METRICS, frame_push.PATH, "/")),
        "POST /futoin/{log}",
        "GET /futoin/{log}",
        "WebSocket /futoin/{log}",
    }


def operations() -> set[str]:
    """Of management, over HTTP and AMQP."""
    return {f"{type.word} {name}" for type in TYPES.values() for name in type.operations} | {
        f"management {name}" for name in Management()._of_node
    }


def functions() -> set[str]:
    """Of FutoIn, over HTTP and WebSocket."""
    return {function for _, function in handlers(Pushing())}


def frames() -> set[str]:
    """Of AMQP: performatives, and those of SASL."""
    found = set(FRAMES)
    assert all(issubclass(getattr(performatives, name), Composite) for name in found)
    return found | {name for name in dir(sasl) if name.startswith("Sasl") and name != "SaslFrame"}


def calls() -> set[str]:
    """Of the bulk process, to the server, and of its clients."""
    own = set(BulkCalls(MemoryStore(), OpenGuard()).table())
    shapes = {f"action {each.name}" for each in vars(wire).values() if isinstance(each, wire.ActionShape)}
    return own | shapes


def jobs() -> set[str]:
    """Functions of the server that begin a task, or a timer, of its event loop."""
    return {
        f"{path.relative_to(SOURCES)} {name}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path.relative_to(SOURCES).parts[0] not in OTHER_PROCESSES
        for name in _beginning(ast.parse(path.read_text()), "")
    }


def _beginning(node: ast.AST, function: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        name = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and child.func.attr in _BEGINS:
            yield function
        yield from _beginning(child, name)
