"""The name in a client's certificate, and the login that it is."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest
from websockets.asyncio.client import connect

from headwater.server.httpd.peer import extensions_of, subject_of
from tests.amqp.certificates import Authority
from tests.passwords import HASH, PASSWORD

from ..running import RunningServer

SUBJECT = ((("countryName", "DE"),), (("organizationName", "Näh, Co"),), (("commonName", "#worker"), ("userId", "7")))


def test_subject_is_written_as_rfc_4514_says():
    assert subject_of({"subject": SUBJECT}) == "CN=\\#worker+UID=7,O=Näh\\, Co,C=DE"


def test_without_a_certificate_there_is_no_extension():
    assert extensions_of(None) is None and extensions_of({}) is None
    assert extensions_of({"subject": SUBJECT[:1]}) == {"tls": {"client_cert_name": "C=DE"}}


class Clients(NamedTuple):
    """A server whose users are alice and bob, for pages of every origin, and TLS contexts of its clients by name."""

    server: RunningServer
    contexts: dict[str, ssl.SSLContext]

    def name(self, shown: str, headers: Mapping[str, str]) -> str:
        """Who a client is to the server that shows that certificate, and these fields; empty: who is refused."""
        self.server._context = self.contexts[shown]
        status, body = self.server.ask("/console/session", headers=headers)
        assert status in (200, 401), body
        return json.loads(body)["user"] if status == 200 else ""


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    directory = tmp_path_factory.mktemp("certificates")
    authority = Authority(directory, "authority")
    own = authority.issue("server", "IP:127.0.0.1")
    users = "".join(f'[users.{name}]\npassword = "{HASH}"\ngrants = ["all:*"]\n' for name in ("alice", "bob"))
    files = f'[tls]\ncertificate = "{own.file}"\nkey = "{own.key}"\nclient_ca = "{authority.own.file}"\n'
    (directory / "headwater.toml").write_text(f'[http]\norigins = ["*"]\n{files}{users}', encoding="utf-8")
    contexts = {name: authority.context(authority.issue(name)) for name in ("alice", "mallory")}
    with RunningServer("--storage", "memory", cwd=directory, context=authority.context()) as server:
        yield Clients(server, {"": authority.context(), **contexts})


def test_a_certificate_is_a_login_for_programs_and_for_pages_of_the_console(clients: Clients) -> None:
    basic = {"authorization": "Basic " + base64.b64encode(f"bob:{PASSWORD}".encode()).decode()}
    wrong = {"authorization": "Basic " + base64.b64encode(b"alice:wrong").decode()}
    page, field = {"sec-fetch-site": "same-origin"}, {"headwater-console": "1"}
    assert [
        case
        for *case, expected in (
            ("", {}, ""),
            ("alice", {}, "alice"),
            ("mallory", {}, ""),
            ("alice", basic, "bob"),
            ("alice", wrong, ""),
            ("alice", page, ""),
            ("alice", page | field, "alice"),
            ("alice", page | {"headwater-console": "of a session that ended"}, ""),
            ("alice", {"origin": clients.server.url} | field, "alice"),
            ("alice", {"origin": "https://app.example.org"}, ""),
            ("alice", {"origin": "https://app.example.org"} | field, ""),
            ("alice", {"user-agent": "Mozilla/5.0"}, ""),
            ("alice", {"origin": "https://app.example.org"} | basic, "bob"),
        )
        if clients.name(case[0], case[1]) != expected
    ] == []


def test_a_certificate_is_a_login_for_messages_of_futoin(clients: Clients) -> None:
    message = json.dumps({"f": "futoin.evt.gen:1.1:addEvent", "p": {"type": "A", "data": 1}, "rid": "C1"}).encode()
    replies = {}
    for name, context in clients.contexts.items():
        over_websocket = json.loads(asyncio.run(said(clients.server, context, message)))
        clients.server._context = context
        over_http = json.loads(clients.server.ask("/futoin/default", message)[1])
        replies[name] = [str(reply.get("edesc") or reply["r"]) for reply in (over_websocket, over_http)]
    refused = "Client Certificate Names No User"
    assert replies == {"": ["Anonymous not allowed"] * 2, "alice": ["1", "2"], "mallory": [refused] * 2}


async def said(server: RunningServer, context: ssl.SSLContext, message: bytes) -> str | bytes:
    """The reply over a WebSocket. Not by `websockets.sync`: it reads and writes TLS in two threads at once, and in one
    of 600 connections what it wrote got lost (Python 3.11)."""
    url = server.url.replace("https://", "wss://") + "/futoin/default"
    async with connect(url, ssl=context, compression=None) as connection:
        await connection.send(message)
        return await connection.recv()
