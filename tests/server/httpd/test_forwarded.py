"""Whom a proxy may speak for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.http import Receive, Scope, Send
from headwater.server.httpd.forwarded import Forwarded, TrustedProxies

PROXY = "192.0.2.1"
CLIENT = "198.51.100.7"


def seen(
    trusted: list[str],
    *fields: tuple[bytes, bytes],
    peer: tuple[str, int] | None = (PROXY, 1234),
    kind: str = "http",
) -> tuple[Any, str]:
    """Client and scheme as an application sees them."""
    scopes: list[Scope] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)

    scheme = "ws" if kind == "websocket" else "http"
    scope: Scope = {"type": kind, "client": peer, "scheme": scheme, "headers": list(fields)}
    asyncio.run(_asked(Forwarded(application, TrustedProxies(trusted)), scope))
    return scopes[0]["client"], scopes[0]["scheme"]


async def _asked(application: Forwarded, scope: Scope) -> None:
    await application(scope, None, None)  # type: ignore[arg-type]


def by(value: str) -> tuple[bytes, bytes]:
    return b"x-forwarded-for", value.encode()


@pytest.mark.parametrize("trusted", [[PROXY], ["192.0.2.0/24"], ["*"], ["2001:db8::/32", PROXY]])
def test_a_trusted_proxy_says_who_asks_and_how(trusted: list[str]) -> None:
    assert seen(trusted, by(CLIENT), (b"x-forwarded-proto", b"https")) == ((CLIENT, 0), "https")


@pytest.mark.parametrize("trusted", [["192.0.2.2"], ["198.51.100.0/24"], ["192.0.2.0/99"], ["proxy"], []])
def test_anybody_else_says_nothing(trusted: list[str]) -> None:
    assert seen(trusted, by(CLIENT), (b"x-forwarded-proto", b"https")) == ((PROXY, 1234), "http")


def test_what_a_client_made_up_before_its_own_address_does_not_count() -> None:
    trusted = [PROXY, "192.0.2.2"]
    assert seen(trusted, by(f"203.0.113.9, {CLIENT}, 192.0.2.2"))[0] == (CLIENT, 0)
    assert seen(trusted, by("203.0.113.9"), by(CLIENT), by("192.0.2.2"))[0] == (CLIENT, 0), (
        "several fields are one list"
    )


def test_a_client_on_a_trusted_proxy_is_the_first_one() -> None:
    assert seen([PROXY, "192.0.2.2"], by("192.0.2.2, 192.0.2.1"))[0] == ("192.0.2.2", 0)
    assert seen(["*"], by(f"{CLIENT}, 203.0.113.9"))[0] == (CLIENT, 0)


@pytest.mark.parametrize(
    ("entry", "client"),
    [
        (f"{CLIENT}:81", (CLIENT, 81)),
        ("[2001:db8::1]:81", ("2001:db8::1", 81)),
        ("[2001:db8::1]", ("2001:db8::1", 0)),
        ("2001:db8::1", ("2001:db8::1", 0)),
        ("[2001:db8::1", ("[2001:db8::1", 0)),
        ("unknown", ("unknown", 0)),
        ("_hidden:x", ("_hidden:x", 0)),
    ],
)
def test_a_client_may_be_named_with_its_port(entry: str, client: tuple[str, int]) -> None:
    assert seen([PROXY], by(entry))[0] == client


def test_an_empty_list_names_nobody() -> None:
    assert seen([PROXY], by(""))[0] == (PROXY, 1234)


@pytest.mark.parametrize(
    ("said", "kind", "scheme"),
    [
        (b"https", "websocket", "wss"),
        (b"wss", "websocket", "wss"),
        (b"http", "websocket", "ws"),
        (b" https ", "http", "https"),
        (b"wss", "http", "https"),
        (b"gopher", "http", "http"),
        (b"https,http", "http", "http"),
    ],
)
def test_the_scheme_is_one_of_the_web(said: bytes, kind: str, scheme: str) -> None:
    assert seen([PROXY], (b"x-forwarded-proto", said), kind=kind)[1] == scheme


def test_who_comes_over_a_unix_socket_is_a_proxy_only_where_everybody_is() -> None:
    assert seen([PROXY], by(CLIENT), peer=None)[0] is None
    assert seen(["*"], by(CLIENT), peer=None)[0] == (CLIENT, 0)
