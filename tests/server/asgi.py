"""ASGI without a network: send one request to an application and collect its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headwater.http import Application, Message


class Answer(NamedTuple):
    """What the application answered."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


def scope(
    path: str, method: str = "GET", headers: Sequence[tuple[bytes, bytes]] = (), type: str = "http"
) -> dict[str, Any]:
    """An ASGI scope."""
    return {
        "type": type,
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": list(headers),
        "client": ("10.0.0.1", 4711),
    }


async def ask(application: Application, path: str, method: str = "GET", **more: Any) -> Answer:
    """Send a request without body."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await application(scope(path, method, **more), receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(sent[0]["status"], dict(sent[0]["headers"]), body)
