"""Who is believed to be a server of the home, and what the primary takes over from it."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.homes.home_secret import SECRET_HEADER, renew_secret
from headwater.server.front.forwarding.fields import PEER_HEADER, answer_fields, client_in, request_head
from headwater.server.front.forwarding.sender import Sender, Senders
from tests.http.asgi import scope

from .hop import Secret


def asked(secret: bytes | None, peer: bytes | None, kind: str = "http") -> dict[str, Any]:
    fields = [(b"x-other", b"1")]
    fields += [(SECRET_HEADER, secret)] if secret is not None else []
    fields += [(PEER_HEADER, peer)] if peer is not None else []
    return {**scope("/x", headers=fields, type=kind), "scheme": "http"}


def test_a_replica_is_believed_by_the_secret_alone() -> None:
    secret = Secret()
    senders = Senders(secret.home)
    believed = asked(secret.value, b"https 192.0.2.1")
    assert senders.of(believed) is Sender.REPLICA
    assert (believed["client"], believed["scheme"]) == (("192.0.2.1", 0), "https")
    assert [name for name, _ in believed["headers"]] == [b"host", b"x-other"]
    for given in (None, b"", b"x", secret.value[:-1], secret.value + b"x"):
        claimed = asked(given, b"https 192.0.2.1")
        assert senders.of(claimed) is Sender.CLIENT
        assert (claimed["client"], claimed["scheme"]) == (("10.0.0.1", 4711), "http")
        assert PEER_HEADER not in dict(claimed["headers"])


def test_the_previous_secret_is_believed_for_a_while() -> None:
    secret = Secret()
    old = secret.value
    renew_secret(secret.state)
    assert Senders(secret.home).of(asked(old, b"http -")) is Sender.REPLICA


def test_a_server_speaks_for_itself_without_a_client() -> None:
    secret = Secret()
    listening = asked(secret.value, None)
    assert Senders(secret.home).of(listening) is Sender.SERVER
    assert SECRET_HEADER in dict(listening["headers"]), "who pushes frames looks at it"
    assert Senders(secret.home).of(asked(b"x", None)) is Sender.CLIENT


@pytest.mark.parametrize("malformed", [b"", b"https", b"ftp 192.0.2.1", b"https ", b"192.0.2.1"])
def test_a_malformed_client_is_not_believed(malformed: bytes) -> None:
    secret = Secret()
    assert client_in(malformed) is None
    assert Senders(secret.home).of(asked(secret.value, malformed)) is Sender.CLIENT


@pytest.mark.parametrize(
    ("client", "scheme", "kind", "expected"),
    [
        (("192.0.2.1", 4711), "https", "http", ("192.0.2.1", 0)),
        (("2001:db8::1", 4711), "http", "http", ("2001:db8::1", 0)),
        (("a proxy says so", 0), "http", "http", ("a proxy says so", 0)),
        (None, "http", "http", None),
        (("192.0.2.1", 4711), "wss", "websocket", ("192.0.2.1", 0)),
    ],
)
def test_what_a_replica_says_is_what_the_primary_reads(client: Any, scheme: str, kind: str, expected: Any) -> None:
    secret = Secret()
    sent = {**scope("/x", type=kind), "client": client, "scheme": scheme}
    lines = request_head(sent, secret.value).split(b"\r\n")[1:-2]
    fields = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
    received = {**scope("/x", headers=fields, type=kind), "scheme": "http"}
    assert Senders(secret.home).of(received) is Sender.REPLICA
    assert (received["client"], received["scheme"]) == (expected, scheme)


def test_a_value_cannot_begin_another_line() -> None:
    fields = [(b"x-folded", b"one\r\n two\nthree")]
    head = request_head({**scope("/x", headers=fields), "scheme": "http"}, b"s")
    assert b"x-folded: one   two three\r\n" in head


def test_the_primary_is_named_unless_the_login_failed() -> None:
    assert answer_fields(200, [(b"date", b"now"), (b"etag", b"1")], "http://a") == [
        (b"etag", b"1"), (b"headwater-primary", b"http://a"),
    ]  # fmt: skip
    assert answer_fields(401, [], "http://a") == answer_fields(403, [], "http://a") == []
    other = [(b"headwater-primary", b"http://b")]
    assert answer_fields(421, other, "http://a") == other
