"""A running server that takes tokens of an issuer: by every protocol, and until they expire."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.amqp.client import Client
from headwater.amqp.protocol import conditions, sasl
from headwater.amqp.protocol.codec import DecodeError
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.frames import AMQP_HEADER, SASL_HEADER, frame
from headwater.amqp.protocol.performatives import Close, Open, encode_performative
from headwater.core.access import Forbidden, IssuerUnavailable, Unauthenticated
from headwater.flight.client import BulkClient
from tests.server.running import RunningServer, headwater

from .issuer import AUDIENCE, Issuer


class Serving:
    """A server, its issuer, and where it listens."""

    def __init__(self, server: RunningServer, issuer: Issuer) -> None:
        self.server, self.issuer = server, issuer
        self.amqp = server.further_url("amqp")
        self.flight = server.further_url("grpc")

    def connected(self) -> socket.socket:
        port = int(self.amqp.rpartition(":")[2])
        return socket.create_connection(("127.0.0.1", port), 20)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    directory = tmp_path_factory.mktemp("oidc")
    with Issuer() as issuer:
        given = ["--log", "orders-1", "--oidc-issuer", issuer.url, "--oidc-audience", AUDIENCE]
        given += ["--oidc-leeway-ms", "0", "--flight-enabled", "true", "--flight-port", "0"]
        with RunningServer(*given, cwd=directory) as server:
            yield Serving(server, issuer)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


EVENTS = json.dumps({"events": [{"type": "A", "data": "{}", "tags": []}]}).encode()


def test_over_http(serving: Serving) -> None:
    right = serving.issuer.token()
    assert serving.server.ask("/logs/orders-1/append", EVENTS, bearer(right))[0] == 200
    assert serving.server.ask("/logs/orders-1", headers=bearer(right))[0] == 200
    assert serving.server.ask("/logs/salaries", headers=bearer(right))[0] == 403
    assert serving.server.ask("/logs/orders-1")[0] == 401
    assert serving.server.ask("/logs/orders-1", headers=bearer(serving.issuer.token(aud="other")))[0] == 401
    assert "token refused" in serving.server.errors and right not in serving.server.errors


def test_over_futoin(serving: Serving) -> None:
    token = serving.issuer.token()
    call = {"f": "futoin.evt.gen:1.0:addEvent", "p": {"type": "EVT", "data": {}}}
    status, said = serving.server.ask("/futoin/orders-1", json.dumps(call).encode(), bearer(token))
    assert (status, "r" in json.loads(said)) == (200, True), said
    in_message = json.dumps({**call, "sec": f"robot:{token}"}).encode()
    assert "r" in json.loads(serving.server.ask("/futoin/orders-1", in_message)[1])


def test_over_amqp_as_the_password_of_plain(serving: Serving) -> None:
    with Client(serving.amqp.replace("//", f"//robot:{serving.issuer.token()}@")) as client:
        client.receiver("orders-1")
    for name, token in (("robot", serving.issuer.token(aud="x")), ("alice", serving.issuer.token())):
        with pytest.raises(AmqpError) as refused:
            Client(serving.amqp.replace("//", f"//{name}:{token}@"))
        assert refused.value.condition == conditions.UNAUTHORIZED_ACCESS


def verdict(serving: Serving, mechanism: str, response: bytes) -> int:
    """The outcome that SASL ends with."""
    with serving.connected() as connection:
        init = sasl.SaslInit(mechanism, response)
        connection.sendall(SASL_HEADER + frame(0, bytes(sasl.encode_sasl(init)), 1))
        connection.recv(8, socket.MSG_WAITALL)
        while True:
            size = int.from_bytes((head := connection.recv(8, socket.MSG_WAITALL))[:4])
            assert head, "the connection was closed"
            body = connection.recv(size - 8, socket.MSG_WAITALL)
            said = sasl.decode_sasl(body, 0, len(body))
            if isinstance(said, sasl.SaslOutcome):
                return said.code
            assert isinstance(said, sasl.SaslMechanisms)
            assert tuple(said.sasl_server_mechanisms) == ("PLAIN", "OAUTHBEARER", "XOAUTH2")


def test_over_amqp_as_a_bearer_token(serving: Serving) -> None:
    token = serving.issuer.token().encode()
    for mechanism, first in (("OAUTHBEARER", b"n,,"), ("OAUTHBEARER", b"n,a=robot,"), ("XOAUTH2", b"user=robot")):
        assert verdict(serving, mechanism, first + b"\x01auth=Bearer " + token + b"\x01\x01") == sasl.OK
    assert verdict(serving, "XOAUTH2", b"user=alice\x01auth=Bearer " + token + b"\x01\x01") == sasl.AUTH
    assert verdict(serving, "OAUTHBEARER", b"n,,\x01auth=Basic x\x01\x01") == sasl.AUTH


@pytest.mark.parametrize("response", [b"", b"n,,", b"n,,\x01auth=Bearer \x01", b"user=\xff\x01auth=Bearer x\x01\x01"])
def test_a_response_without_a_token_is_malformed(response: bytes) -> None:
    with pytest.raises(DecodeError):
        sasl.parse_bearer(response)


def test_over_flight(serving: Serving) -> None:
    with BulkClient(serving.flight, token=serving.issuer.token(), retries=0) as client:
        assert client.logs() == ["orders-1"]
        with pytest.raises(Forbidden):
            client.head("salaries")
    with BulkClient(serving.flight, user="robot", password=serving.issuer.token(), retries=0) as client:
        assert client.logs() == ["orders-1"]
    with (
        BulkClient(serving.flight, token=serving.issuer.token(iss="x"), retries=0) as client,
        pytest.raises(Unauthenticated),
    ):
        client.logs()


def test_what_was_open_ends_with_the_token(serving: Serving) -> None:
    expires_at = int(time.time()) + 5
    token = serving.issuer.token(exp=expires_at, sub="short")
    stream = serving.server.open("/logs/orders-1/subscribe?query=all", headers=bearer(token))
    with stream, serving.connected() as amqp, BulkClient(serving.flight, token=token, retries=0) as flight:
        init = frame(0, bytes(sasl.encode_sasl(sasl.SaslInit("PLAIN", sasl.plain("short", token)))), 1)
        opened = frame(0, bytes(encode_performative(Open("short"))))
        amqp.sendall(SASL_HEADER + init + AMQP_HEADER + opened)
        assert flight.logs() == ["orders-1"]
        assert b"retry" in stream.read(20)
        stream.read()  # to its end
        received = b""
        while data := amqp.recv(65536):
            received += data
            if b"has expired" in received:  # in a close, which the server waits to have answered
                amqp.sendall(frame(0, bytes(encode_performative(Close()))))
        assert b"amqp:unauthorized-access" in received and b"has expired" in received
        assert time.time() >= expires_at
        with pytest.raises(Unauthenticated):
            flight.logs()
    assert serving.server.ask("/logs/orders-1", headers=bearer(token))[0] == 401


def test_while_the_issuer_is_down_a_token_is_not_wrong(tmp_path: Path) -> None:
    with Issuer() as issuer:
        unknown = issuer.token()
    given = ["--oidc-issuer", issuer.url, "--oidc-audience", AUDIENCE, "--flight-enabled", "true", "--flight-port", "0"]
    with RunningServer(*given, cwd=tmp_path) as server:
        status, said = server.ask("/logs/orders-1", headers=bearer(unknown))
        assert (status, json.loads(said)["type"]) == (503, "urn:headwater:problem:issuer_unavailable")
        assert server.ask("/metrics", headers=bearer(unknown))[0] == 503
        serving = Serving(server, issuer)
        assert verdict(serving, "PLAIN", sasl.plain("robot", unknown)) == sasl.SYS_TEMP
        with BulkClient(serving.flight, token=unknown, retries=0) as client, pytest.raises(IssuerUnavailable):
            client.logs()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--oidc-issuer", "http://id.example.org", "--oidc-audience", "x"], "expected an https:// URL"),
        (["--oidc-issuer", "https://id.example.org"], "oidc.audience: missing"),
        (["--oidc-issuer", "https://i.example.org", "--oidc-audience", "x", "--oidc-algorithms", "HS256"], "RS256"),
    ],
)
def test_what_is_missing_or_not_safe_is_refused_at_the_start(tmp_path: Path, given: list[str], said: str) -> None:
    ports = ("--http-port", "0", "--amqp-port", "0", "--flight-enabled", "false")
    done = headwater("serve", *ports, *given, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr
