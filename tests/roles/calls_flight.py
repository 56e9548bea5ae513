"""The calls of Arrow Flight."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from .world import ADMIN, LOG, TIMEOUT_S, Role, Target, Verdict, World

_ROWS = pa.record_batch({"type": pa.array(["T"]), "data": pa.array([b"{}"], pa.binary())})


class Caller:
    """A role's client, for one call."""

    def __init__(self, world: World, role: Role) -> None:
        self.client = flight.FlightClient(world.flight_url)
        self.shown = world.credentials(role)
        shown = {} if self.shown is None else _header(self.shown)
        headers = [(name.encode(), value.encode()) for name, value in shown.items()]
        self.options = flight.FlightCallOptions(headers=headers, timeout=TIMEOUT_S)

    def act(self, name: str, body: Any) -> Any:
        """The answer to an action."""
        action = flight.Action(name, json.dumps(body).encode() if body is not None else b"")
        [result] = self.client.do_action(action, self.options)
        return json.loads(result.body.to_pybytes())

    def put(self, command: Mapping[str, Any]) -> list[Any]:
        """The answers to one batch."""
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command))
        writer, reader = self.client.do_put(descriptor, _ROWS.schema, self.options)
        answers = []
        with writer:
            writer.write_batch(_ROWS)
            writer.done_writing()
            while (metadata := reader.read()) is not None:
                answers.append(json.loads(metadata.to_pybytes()))
        assert answers
        return answers


class _NoHandshake(flight.ClientAuthHandler):  # type: ignore[misc]
    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        incoming.read()

    def get_token(self) -> bytes:
        return b""


def _header(shown: tuple[str, str]) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(':'.join(shown).encode()).decode()}"}


def _handshake(its: Caller, target: Target) -> None:
    if its.shown is None:
        its.client.authenticate(_NoHandshake(), flight.FlightCallOptions(timeout=TIMEOUT_S))
    else:
        its.client.authenticate_basic_token(*its.shown, flight.FlightCallOptions(timeout=TIMEOUT_S))


def _described(its: Caller, target: Target) -> None:
    its.client.get_schema(flight.FlightDescriptor.for_path(LOG), its.options)


CALLS: dict[str, Callable[[Caller, Target], Any]] = {
    "handshake": _handshake,
    "list_actions": lambda its, target: list(its.client.list_actions(its.options)),
    "list_flights": lambda its, target: list(its.client.list_flights(b"", its.options)),
    "get_flight_info of a path": lambda its, target: its.client.get_flight_info(
        flight.FlightDescriptor.for_path(LOG), its.options
    ),
    "get_flight_info of a command": lambda its, target: its.client.get_flight_info(
        flight.FlightDescriptor.for_command(json.dumps({"log": LOG})), its.options
    ),
    "get_schema": _described,
    "do_get": lambda its, target: its.client.do_get(flight.Ticket(json.dumps({"log": LOG})), its.options).read_all(),
    "do_put append": lambda its, target: its.put({"append": {"log": LOG}}),
    "do_put stage": lambda its, target: its.put(
        {"stage": {"log": LOG, "writer": target["writer"], "batch": 0, "part": 0}}
    ),
}

_CONSUMER = ("log", "owner", "component")
BODIES: dict[str, Callable[[Target], Any]] = {
    "logs": lambda target: None,
    "heads": lambda target: {"logs": [LOG]},
    "lend": lambda target: {"log": LOG, "after": 0, "upto": 1, "incarnation": "i", "uid": 0},
    "position_at": lambda target: {"log": LOG, "recorded_at": 0},
    "create_log": lambda target: {"log": target["log"]},
    "trim": lambda target: {"log": target["log"], "below": 2},
    "consumer": lambda target: {key: target[key] for key in _CONSUMER},
    "register_consumer": lambda target: {key: target[key] for key in _CONSUMER},
    "acknowledge": lambda target: {**{key: target[key] for key in _CONSUMER}, "sequence_number": 1},
    "unregister_consumer": lambda target: {key: target[key] for key in _CONSUMER},
    "report_position": lambda target: {"log": LOG, "stream": "s", "position": 1},
    "writer": lambda target: {"log": LOG, "writer": target["writer"]},
    "commit": lambda target: {"log": LOG, "writer": target["writer"], "batch": 0, "stages": [target["stage"]]},
    "discard": lambda target: {"log": LOG, "writer": target["writer"], "batch": 0},
    "forget_writer": lambda target: {"log": LOG, "writer": target["writer"]},
}
"""Of actions whose body is more than the log."""


def prepared(world: World, call: str) -> Target:
    """What the call is to be about."""
    name = call.removeprefix("do_action ")
    if name == "create_log":
        return world.no_log()
    if name == "trim":
        return world.log()
    if name in ("consumer", "acknowledge", "unregister_consumer"):
        return world.consumer()
    if name == "register_consumer":
        return world.no_consumer()
    writer = world.fresh("writer")
    if name in ("commit", "discard", "writer", "forget_writer"):
        command = {"stage": {"log": LOG, "writer": writer, "batch": 0, "part": 0}}
        return {"writer": writer, "stage": Caller(world, ADMIN).put(command)[0]["stage"]}
    return {"writer": writer}


def make(world: World, call: str, role: Role, target: Target) -> Verdict:
    """Make the call."""
    its = Caller(world, role)
    try:
        if call in CALLS:
            CALLS[call](its, target)
        else:
            name = call.removeprefix("do_action ")
            its.act(name, BODIES.get(name, lambda target: {"log": LOG})(target))
    except flight.FlightUnauthenticatedError as error:
        if call == "handshake":
            return _unauthenticated(error)
        assert json.loads(error.extra_info)["error"] == "unauthenticated", error
        return Verdict.UNAUTHENTICATED
    except flight.FlightUnauthorizedError as error:
        told = json.loads(error.extra_info)
        assert told["error"] == "forbidden" and told["log"] and told["right"], error
        return Verdict.FORBIDDEN
    except pa.ArrowException as error:
        if call == "get_schema":
            return Verdict.FORBIDDEN if "no right to" in str(error) else _unauthenticated(error)
        raise
    finally:
        its.client.close()
    return Verdict.DONE


def _unauthenticated(error: Exception) -> Verdict:
    assert "credentials are missing or wrong" in str(error) or "valid credentials are required" in str(error), error
    return Verdict.UNAUTHENTICATED
