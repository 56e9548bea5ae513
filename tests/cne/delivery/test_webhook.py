"""One call of a webhook: what it makes in the event loop, and what it never sends."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter
from typing import Any

import pytest

from headwater.cne.delivery.webhook import Webhooks
from headwater.cne.settings import Settings
from tests.amqp.certificates import Authority

from ..world import PATIENCE_S, Subscriber


async def webhooks_of(**settings: Any) -> Webhooks:
    webhooks = Webhooks(Settings(timeout_ms=PATIENCE_S * 1000, **settings))
    webhooks.start()
    return webhooks


def test_calls_on_a_kept_connection_make_no_tasks_and_hardly_a_timer(run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        subscriber, webhooks = await Subscriber().start(), await webhooks_of()
        await webhooks.post(subscriber.uri(), b"{}")
        loop = asyncio.get_running_loop()
        made: Counter[str] = Counter()
        for name in ("call_at", "create_task"):
            true = getattr(loop, name)

            def counting(*given: Any, name: str = name, true: Any = true, **options: Any) -> Any:
                made[name] += 1
                return true(*given, **options)

            monkeypatch.setattr(loop, name, counting)
        for _ in range(50):
            assert (await webhooks.post(subscriber.uri(), b"{}")).status == 204
        monkeypatch.undo()
        assert made["create_task"] == 0 and made["call_at"] <= 1, made
        await webhooks.close()
        await subscriber.stop()

    run(scenario())


def test_a_call_that_cannot_be_written_is_not_sent(run) -> None:
    async def scenario() -> None:
        subscriber, webhooks = await Subscriber().start(), await webhooks_of()
        outcome = await webhooks.post(subscriber.uri(), b"{}", {"ce-id": "x\r\nce-source: y"})
        assert (outcome.status, outcome.problem) == (
            0,
            "ValueError: the header field 'ce-id' contains an invalid character",
        )
        assert not (await webhooks.post(subscriber.uri().replace("//", "//user:secret@"), b"{}")).is_success
        assert not (await webhooks.post("http://10.0.0.1/", b"{}")).is_success
        assert subscriber.calls == [] and webhooks.calls["failure"] == 3
        await webhooks.close()
        await subscriber.stop()

    run(scenario())


def test_an_endpoint_that_closed_its_kept_connection_is_called_on_a_new_one(run) -> None:
    async def scenario() -> None:
        subscriber, webhooks = await Subscriber().start(), await webhooks_of()
        assert (await webhooks.post(subscriber.uri(), b"{}")).status == 204
        await subscriber.stop()
        await subscriber.start()
        assert (await webhooks.post(subscriber.uri(), b"{}")).status == 204
        assert subscriber.connections == 2
        await webhooks.close()
        await subscriber.stop()

    run(scenario())


def test_what_an_answer_says_is_the_outcome(run) -> None:
    async def scenario() -> None:
        async def behave(call: Any) -> bytes:
            if call.method == "OPTIONS":
                return b"HTTP/1.1 204 x\r\nWebHook-Allowed-Origin: headwater\r\n\r\n"
            return b"HTTP/1.1 503 x\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy"

        subscriber, webhooks = await Subscriber(behave).start(), await webhooks_of()
        outcome = await webhooks.post(subscriber.uri(), b"{}")
        assert (outcome.status, outcome.retry_after_s, outcome.text) == (503, 7.0, "answered 503")
        assert await webhooks.allows(subscriber.uri(), "headwater")
        assert not await webhooks.allows(subscriber.uri(), "headwater.evil")
        assert subscriber.connections == 1
        await webhooks.close()
        await subscriber.stop()

    run(scenario())


def test_webhook_is_verified_by_the_authority_that_is_set_and_sees_our_certificate(run, tmp_path):
    authority, stranger = Authority(tmp_path, "authority"), Authority(tmp_path, "stranger")
    hook, own = authority.issue("hook", "IP:127.0.0.1"), authority.issue("headwater")
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(hook.file, hook.key)
    served.load_verify_locations(authority.own.file)
    served.verify_mode = ssl.CERT_REQUIRED
    ca = tmp_path / "trusted.pem"
    names: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            names.append(dict(part[0] for part in writer.get_extra_info("peercert")["subject"])["commonName"])
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
            await writer.drain()
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=served)
        uri = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/event"
        ca.write_bytes(stranger.own.file.read_bytes())
        webhooks = Webhooks(Settings(webhook_ca=ca, webhook_certificate=own.file, webhook_key=own.key))
        webhooks.start()
        assert "CERTIFICATE_VERIFY_FAILED" in (await webhooks.post(uri, b"{}", timeout_s=20)).problem
        ca.write_bytes(authority.own.file.read_bytes() + b"\n")  # renewed while it runs
        assert (await webhooks.post(uri, b"{}", timeout_s=20)).status == 204
        ca.write_bytes(b"half a file")
        assert (await webhooks.post(uri, b"{}", timeout_s=20)).status == 204
        await webhooks.close()
        server.close()
        assert names == ["headwater", "headwater"]

    run(scenario())
