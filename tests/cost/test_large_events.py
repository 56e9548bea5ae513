"""One event of up to 60 MiB, in each form that it is appended in: no call into a decoder holds the event loop."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import msgspec
import pytest

from .measuring import ObservedServer

MIB = 1024 * 1024
SIZES = (8 * MIB, 60 * MIB)
"""Of the data."""
JSON, PACKED = "application/json", "application/vnd.msgpack"
CLOUDEVENT, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
CONTEXT = {"specversion": "1.0", "type": "t", "source": "s"}


def _append(**event: object) -> bytes:
    return msgspec.json.encode({"events": [{"type": "t", **event}]})


def _escaped(size: int) -> bytes:
    return _append(data="MARK").replace(b"MARK", b"\\u00e9\\n" * (size // 3))


FORMS: dict[str, tuple[str, str, Callable[[int], bytes]]] = {
    "text": ("append", JSON, lambda size: _append(data="x" * size)),
    "text of many bytes a character": ("append", JSON, lambda size: _append(data="é" * (size // 2))),
    "text with escapes": ("append", JSON, lambda size: _escaped(size // 3)),
    "base64": ("append", JSON, lambda size: _append(data_base64=base64.b64encode(bytes(size)).decode())),
    "packed": ("append", PACKED, lambda size: msgspec.msgpack.encode({"events": [["t", bytes(size), []]]})),
    "a cloudevent's text": (
        "events",
        CLOUDEVENT,
        lambda size: json.dumps({**CONTEXT, "id": f"{size}-{next(_ids)}", "data": "x" * size}).encode(),
    ),
    "a cloudevent's base64": (
        "events",
        CLOUDEVENT,
        lambda size: json.dumps({
            **CONTEXT, "id": f"{size}-{next(_ids)}", "data_base64": base64.b64encode(bytes(size)).decode(),
        }).encode(),
    ),
    "a batch with one": (
        "events",
        BATCH,
        lambda size: json.dumps([{**CONTEXT, "id": f"{size}-{next(_ids)}", "data": "x" * size}]).encode(),
    ),
}  # fmt: skip
_ids = iter(range(10**9))


@pytest.mark.parametrize("form", FORMS)
def test_an_event_of_60_mib(server: ObservedServer, form: str) -> None:
    action, media_type, body_of = FORMS[form]
    settings = json.dumps({"event_bytes_max": 64 * MIB}).encode()
    assert server.exchange("PUT", "/logs/large", settings, JSON) in (200, 201)
    statuses = set()
    for size in SIZES:
        body = body_of(size)

        def post(body: bytes = body) -> None:
            statuses.add(server.exchange("POST", f"/logs/large/{action}", body, media_type))

        server.check_holds(f"{form} of {size // MIB} MiB", post)
    assert statuses <= {200, 201, 204, 409}, statuses
