from __future__ import annotations

import base64

import pyarrow.flight as flight
import pytest

from headwater.core import Event, Forbidden, Grant, Right, TooManyLogins, Unauthenticated
from headwater.flight.client import BulkClient
from headwater.flight.server.authentication import address_of
from headwater.flight.wire import Ticket
from headwater.storage.memory import MemoryStore

from ..conftest import Raw, batch, refusal
from ..memory_backend import MemoryBackend, serving

ALL = Grant("*", frozenset(Right))


class Watching(MemoryBackend):
    """Notes who was authenticated, from where."""

    def __init__(self, store, users):
        super().__init__(store, users)
        self.logins: list[tuple[object, str]] = []

    def authenticate(self, credentials, peer):
        self.logins.append((credentials.name if credentials else None, peer))
        return super().authenticate(credentials, peer)


@pytest.fixture
def backend():
    store = MemoryStore()
    store.create("orders").append([Event("A")])
    return Watching(store, {"alice": ("secret", [ALL]), "bob": ("s€cret", [Grant("mine", frozenset(Right))])})


def basic(name, password):
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def test_without_credentials_or_with_wrong_ones_nothing_is_done_and_nothing_told(url):
    for header in (
        {}, {"authorization": basic("alice", "wrong")}, {"authorization": basic("nobody", "secret")},
        {"authorization": "Bearer wrong"}, {"authorization": "Bearer hws_wrong"}, {"authorization": "Digest x"},
        {"authorization": "Basic !"}, {"authorization": ""},
    ):  # fmt: skip
        raw = Raw(url, **header)
        command = {"append": {"log": "orders"}}
        for call in (
            lambda raw=raw: raw.act("logs"),
            lambda raw=raw: raw.act("nonsense"),
            lambda raw=raw: raw.get(log="orders"),
            lambda raw=raw: raw.plan(log="nothing"),
            lambda raw=raw, command=command: raw.put(command, batch("A")),
            lambda raw=raw: list(raw.client.list_flights(options=raw.options)),
        ):
            kind, told = refusal(call)
            assert kind is flight.FlightUnauthenticatedError
            assert told == {"error": "unauthenticated", "message": "credentials are missing or wrong"}
        for call in (
            lambda raw=raw: raw.client.get_schema(flight.FlightDescriptor.for_path("orders"), raw.options),
            lambda raw=raw: raw.client.authenticate_basic_token("alice", "wrong", raw.options),
        ):
            with pytest.raises(Exception, match="credentials are missing or wrong") as refused:
                call()
            assert "Traceback" not in str(refused.value) and ".py" not in str(refused.value)
        raw.close()


def test_a_login_that_was_not_looked_at_is_to_come_again(url, backend, monkeypatch):
    def crowded(credentials, peer):
        raise TooManyLogins(2.0)

    monkeypatch.setattr(backend, "authenticate", crowded)
    raw = Raw(url, authorization=basic("alice", "secret"))
    kind, told = refusal(lambda: raw.act("logs"))
    assert kind is flight.FlightUnavailableError
    assert (told["error"], told["retry_after_s"]) == ("too_many_logins", 2.0)
    raw.close()
    with BulkClient(url, user="alice", password="secret", retries=0) as client, pytest.raises(TooManyLogins):
        client.logs()


def test_a_handshake_of_pyarrow_gives_a_session(url, backend):
    raw = Raw(url)
    for _ in range(2):
        name, value = raw.client.authenticate_basic_token("alice", "secret")
        assert (name, value[:11]) == (b"authorization", b"Bearer hws_")
    assert backend.logins == [("alice", "")]
    with_session = Raw(url, authorization=value.decode())
    assert with_session.act("logs") == {"logs": ["orders"]}
    assert with_session.get(log="orders").num_rows == 1
    assert backend.logins == [("alice", "")]
    kind, _ = refusal(lambda: raw.client.authenticate_basic_token("alice", "wrong"))
    assert kind is flight.FlightUnauthenticatedError
    raw.close()
    with_session.close()


def test_a_password_is_checked_once_and_its_peer_is_told(url, backend):
    with BulkClient(url, user="bob", password="s€cret") as client:
        for _ in range(3):
            assert client.logs() == []
        with pytest.raises(Forbidden, match="user 'bob' has no right to read log 'orders'"):
            list(client.read(Ticket("orders")))
        with pytest.raises(Forbidden, match="user 'bob' has no right to append log 'orders'"):
            client.append("orders", batch("A"))
    assert backend.logins == [("bob", "127.0.0.1")]
    assert backend.refusals == 2


def test_an_api_token_is_looked_up_once_a_minute(url, backend):
    with BulkClient(url, token="secret") as client:
        assert [client.logs() for _ in range(3)] == [["orders"]] * 3
    assert backend.logins == [("", "127.0.0.1")]


def test_a_token_that_was_sent_with_a_refusal_is_worth_nothing(url, server):
    given = []

    class Looking(flight.ClientMiddlewareFactory):
        def start_call(self, info):
            return Headers()

    class Headers(flight.ClientMiddleware):
        def sending_headers(self):
            return {"authorization": basic("alice", "wrong")}

        def received_headers(self, headers):
            given.extend(headers.get("authorization", []))

    client = flight.FlightClient(url, middleware=[Looking()])
    with pytest.raises(flight.FlightUnauthenticatedError):
        list(client.do_action(flight.Action("logs", b"")))
    client.close()
    assert len(server.sessions) == 0
    for value in given:
        raw = Raw(url, authorization=value)
        assert refusal(lambda raw=raw: raw.act("logs"))[1]["error"] == "unauthenticated"
        raw.close()


def test_a_client_whose_session_is_over_logs_in_again(url, server, backend):
    def forget():
        server.sessions._by_token.clear()

    with BulkClient(url, user="alice", password="secret", retries=0) as client:
        assert client.logs() == ["orders"]
        forget()
        assert client.logs() == ["orders"]
        forget()
        assert [part.num_rows for part in client.read(Ticket("orders"))] == [1]
        forget()
        assert client.append("orders", batch("B"))[0].last == 2
        forget()
        assert client.append("orders", iter([batch("C"), batch("D")]))[-1].last == 4
        del backend.users["alice"]
        forget()
        with pytest.raises(Unauthenticated):
            client.logs()


def test_where_no_user_is_configured_everybody_may_do_everything():
    store = MemoryStore()
    store.create("orders")
    with serving(MemoryBackend(store)) as server:
        url = f"grpc://127.0.0.1:{server.port}"
        for login in ({}, {"user": "x", "password": "y"}, {"token": "z"}):
            with BulkClient(url, **login) as client:
                assert client.logs() == ["orders"]
        raw = Raw(url)
        assert raw.client.authenticate_basic_token("x", "y")
        raw.close()


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.1:5000", "10.0.0.1"),
        ("ipv6:%5B::1%5D:5000", "::1"),
        ("ipv6:[fe80::1%eth0]:1", "fe80::1%eth0"),
        ("unix:/run/x", "unix:/run/x"),
    ],
)
def test_a_peer_is_known_by_its_address(peer, address):
    assert address_of(peer) == address


def test_a_handshake_that_would_have_to_wait_is_looked_at_with_its_first_call(url, backend, server, monkeypatch):
    """Its peer is not known: what others show in theirs holds up nobody."""
    looked_at = backend.authenticate

    def crowded(credentials, peer):
        if not peer:
            raise TooManyLogins(2.0)
        return looked_at(credentials, peer)

    monkeypatch.setattr(backend, "authenticate", crowded)
    raw = Raw(url)
    right, wrong = (raw.client.authenticate_basic_token("alice", each)[1].decode() for each in ("secret", "wrong"))
    assert backend.logins == [] and len(server.sessions) == 0
    late = Raw(url, authorization=right)
    assert [late.act("logs") for _ in range(2)] == [{"logs": ["orders"]}] * 2
    assert backend.logins == [("alice", "127.0.0.1")] and len(server.sessions) == 1
    other = Raw(url, authorization=wrong)
    for _ in range(2):
        assert refusal(lambda: other.act("logs"))[1]["error"] == "unauthenticated"
    for each in (raw, late, other):
        each.close()
