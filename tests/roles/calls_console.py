"""The calls of the console: its login shows credentials in the body."""

from __future__ import annotations

import json

from .world import NOBODY, Role, Verdict, World

_FIELDS = {"headwater-console": "1", "content-type": "application/json"}


def make(world: World, call: str, role: Role) -> Verdict:
    """Make the call. Who has no credentials logs in with a token of nobody's."""
    method, _, path = call.partition(" ")
    body = None
    if method == "POST":
        shown = world.credentials(role)
        given = {"token": "hw_of_nobody"} if shown is None else {"name": shown[0], "password": shown[1]}
        body, role = json.dumps(given).encode(), NOBODY
    answer = world.ask(role, method, path, body, _FIELDS if body else {})
    if answer.status == 401:
        assert answer.headers["content-type"] == "application/problem+json", answer
        assert answer.json["type"] == "urn:headwater:problem:unauthenticated", answer
        assert "set-cookie" not in answer.headers
        return Verdict.UNAUTHENTICATED
    assert 200 <= answer.status < 300, (call, role.name, answer)
    assert answer.headers["cache-control"] == ("no-cache" if path == "/console/" else "no-store")
    assert ("set-cookie" in answer.headers) is (method != "GET")
    return Verdict.DONE
