"""The functions of FutoIn, over each of its channels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from websockets.sync.client import connect

from headwater.futoin.messages import interface

from .world import LOG, TIMEOUT_S, Role, Verdict, World

CHANNELS = ("POST", "GET", "WebSocket")
DEFINITION = "GET of a definition (`...-iface.json`)"
FUNCTIONS = tuple(interface._functions())
"""All that may be called, in every version."""
_ERRORS = {"SecurityError": Verdict.UNAUTHENTICATED, "Unauthorized": Verdict.FORBIDDEN}


def row_of(function: str) -> str:
    """What the table calls a function of any version."""
    name, _, called = function.split(":")
    return f"{name} {called}"


def channels_of(function: str) -> tuple[str, ...]:
    """How it can be called."""
    return ("WebSocket",) if function.startswith("futoin.evt.push:") else CHANNELS


def parameters(world: World, function: str) -> dict[str, Any]:
    """Parameters that fit; a consumer that is registered is a new one, a consumer that polls is known."""
    event = {"type": "EVT", "data": {"a": 1}}
    return {
        "ping": {"echo": 5},
        "addEvent": event,
        "addEvents": {"events": [event, event]},
        "registerConsumer": {"component": world.fresh("NEW").replace("-", "")},
        "pollEvents": {"component": "KNOWN", "last_id": "1"},
        "readyToReceive": {"component": "KNOWN"},
    }[function.rpartition(":")[2]]


def make(world: World, function: str, channel: str, role: Role, given: Mapping[str, Any]) -> Verdict:
    """Call the function."""
    if channel == "WebSocket":
        reply = _over_websocket(world, function, role, given)
    else:
        reply = _over_http(world, function, channel, role, given)
    if "e" in reply:
        assert "r" not in reply, reply
        assert reply["e"] in _ERRORS, (function, role.name, reply)
        return _ERRORS[reply["e"]]
    assert "r" in reply, reply
    return Verdict.DONE


def definition(world: World, role: Role) -> Verdict:
    """Get the definition of an interface."""
    answer = world.ask(role, "GET", f"/futoin/{LOG}/futoin.evt.gen-1.1-iface.json")
    assert answer.status == 200 and answer.json["iface"] == "futoin.evt.gen", answer
    return Verdict.DONE


def _over_http(world: World, function: str, method: str, role: Role, given: Mapping[str, Any]) -> dict[str, Any]:
    path, body = f"/futoin/{LOG}", None
    if method == "GET":
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}
        path = f"{path}/{function.replace(':', '/')}?{urlencode(texts)}"
    else:
        body = json.dumps({"f": function, "p": given}).encode()
    answer = world.ask(role, method, path, body)
    assert answer.status == 200, answer
    return dict(answer.json)


def _over_websocket(world: World, function: str, role: Role, given: Mapping[str, Any]) -> dict[str, Any]:
    message = {"f": function, "p": given, "rid": "C1"}
    if (shown := world.credentials(role)) is not None:
        message["sec"] = ":".join(shown)
    url = f"ws{world.url.removeprefix('http')}/futoin/{LOG}"
    with connect(url, compression=None, open_timeout=TIMEOUT_S) as connection:
        connection.send(json.dumps(message).encode())
        while (reply := json.loads(connection.recv(timeout=TIMEOUT_S))).get("rid") != "C1":
            pass
    return dict(reply)
