"""ASGI without a network: send one request to an application and collect its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from headwater.http import Application, Message


class Answer(NamedTuple):
    """What the application answered; of status 0 where it did not."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


def scope(
    path: str,
    method: str = "GET",
    headers: Sequence[tuple[bytes, bytes]] = (),
    type: str = "http",
    query: bytes = b"",
    version: str = "1.1",
) -> dict[str, Any]:
    """An ASGI scope; it is for localhost, where `headers` name no other host."""
    if not any(name == b"host" for name, _ in headers):
        headers = [(b"host", b"localhost"), *headers]
    return {
        "type": type,
        "http_version": version,
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": list(headers),
        "client": ("10.0.0.1", 4711),
    }


async def ask(
    application: Application, path: str, method: str = "GET", pieces: Sequence[bytes] = (b"",), **more: Any
) -> Answer:
    """Send a request, its body piece by piece, and wait for the answer; without any piece the client leaves at once."""
    sent: list[Message] = []
    waiting = list(pieces)

    answered = asyncio.Event()
    if not waiting:
        answered.set()  # this one leaves at once

    async def receive() -> Message:
        if not waiting:
            await answered.wait()
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    async def send(message: Message) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            answered.set()

    await application(scope(path, method, **more), receive, send)
    if not sent:
        return Answer(0, {}, b"")
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(sent[0]["status"], dict(sent[0]["headers"]), body)
