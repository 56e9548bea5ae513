"""Whatever a peer says, it gets a reply of the protocol, and never a fault of the server."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.core import Event, OpenGuard
from headwater.futoin.messages.interface import _functions
from headwater.futoin.settings import Settings
from headwater.storage.memory import MemoryStore

from .conftest import LOG, Peer

ALLOWED = {"InvalidRequest", "UnknownInterface", "NotSupportedVersion", "SecurityError", "NotRegistered"}
ALLOWED |= {"LiveNotAllowed", "KeyReused"}

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["type", "data", "key", "events", "component", "last_id", "want", "echo", "wait_ms", "x"])
likely = st.sampled_from(["A", "LIVE", "C", "1", "7", None, 0, 5, ["A"], [], [{"type": "A", "data": 1}], {"a": 1}])
parameters = st.dictionaries(names, likely | anything, max_size=5)
functions = st.sampled_from(sorted(_functions())) | st.text(max_size=40)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"f": functions | anything, "p": parameters | anything},
            optional={"rid": st.just("C1") | anything, "sec": anything, "obf": anything, "forcersp": anything},
        ),
        max_size=8,
    )
)
def test_any_message_gets_a_reply_of_the_protocol(messages: list[Any]) -> None:
    store = MemoryStore()
    store.create(LOG).append([Event("A", b"{}"), Event("odd type", b"\xff")])
    peer = Peer(store, OpenGuard(), Settings())
    try:
        for message in messages:
            if isinstance(message["p"], dict) and isinstance(message["p"].get("wait_ms"), int):
                message["p"]["wait_ms"] = min(message["p"]["wait_ms"], 1)
            reply = peer.http("POST", f"/futoin/{LOG}", json.dumps(message).encode())
            assert reply.status == 200
            assert "r" in reply.json or reply.json["e"] in ALLOWED, (message, reply.json)
    finally:
        peer.close()
