"""Management over HTTP: the calls of `$management`, by method and path, about the same entities."""

from __future__ import annotations

import json
from urllib.parse import quote

from . import calls_amqp
from .table import OPERATION_OF
from .world import Role, Target, Verdict, World


def prepared(world: World, call: str) -> Target:
    """What the call is to be about."""
    return calls_amqp.prepared(world, OPERATION_OF[call]) if call in OPERATION_OF else {}


def make(world: World, call: str, role: Role, target: Target) -> Verdict:
    """Make the call."""
    method, _, path = call.partition(" ")
    sample = calls_amqp.OPERATIONS.get(OPERATION_OF.get(call, ""), calls_amqp.Sample())
    about = {"type": "io.headwater.log", "name": quote(target.get("name", ""), safe="")}
    body = json.dumps(sample.body or {}).encode() if method in ("PUT", "PATCH", "POST") else None
    headers = {} if body is None else {"content-type": "application/json"}
    answer = world.ask(role, method, path.format_map(about), body, headers)
    if answer.status in (401, 403):
        verdict = Verdict.UNAUTHENTICATED if answer.status == 401 else Verdict.FORBIDDEN
        assert answer.headers["content-type"] == "application/problem+json", answer
        assert answer.json["type"] == f"urn:headwater:problem:{verdict}", answer
        if answer.status == 401:
            assert 'Basic realm="headwater"' in answer.headers["www-authenticate"], answer
        else:
            assert answer.json["right"] in ("read", "manage") and answer.json["log"], answer
        return verdict
    assert 200 <= answer.status < 300 or answer.status in sample.done, (call, role.name, answer)
    return Verdict.DONE
