"""Heads of requests are made once for a route, and how many are kept is bounded."""

from __future__ import annotations

from headwater.client.protocol.address import address_of
from headwater.client.protocol.request import HEADS_MAX, Heads, Request, Route


def request(route: Route, body: bytes = b"") -> Request[None]:
    return Request(route, body, "", lambda answer: None)


def heads(url: str = "http://h:1/sub") -> Heads:
    return Heads(address_of(url, None, None, "t", None, True))


def test_a_head_says_all_that_the_server_needs() -> None:
    assert heads().of(request(Route("POST", "/logs/a/append", "x/y"), b"abc")) == (
        b"POST /sub/logs/a/append HTTP/1.1\r\nhost: h:1\r\nuser-agent: headwater-client\r\nauthorization: Bearer t\r\n"
        b"accept: application/json\r\ncontent-type: x/y\r\ncontent-length: 3\r\n\r\n"
    )
    assert heads().of(request(Route("DELETE", "/logs/a"))).endswith(b"content-length: 0\r\n\r\n")
    assert b"content-length" not in heads().of(request(Route("GET", "/logs")))


def test_the_heads_that_are_kept_are_bounded() -> None:
    made = heads()
    for number in range(3 * HEADS_MAX):
        made.of(request(Route("GET", f"/logs/{number}")))
        made.of(request(Route("GET", f"/logs/a/subscribe?after={number}")))
    assert 0 < len(made._made) <= HEADS_MAX
    assert not any("?" in route.path for route in made._made)
