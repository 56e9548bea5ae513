"""Who gets in, and what they may do: SASL on the real guard, rights for each log, TLS and client certificates."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.amqp.client import Client
from headwater.amqp.connections.shared import TICK_S
from headwater.amqp.container import SURPLUS_OF_PLACE_MAX
from headwater.amqp.protocol import conditions, sasl
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.frames import AMQP_HEADER, SASL_HEADER, frame
from headwater.amqp.protocol.message import DATA, Message, Properties
from headwater.amqp.protocol.performatives import Accepted, Open, Rejected, encode_performative
from headwater.amqp.settings import AmqpSettings
from headwater.core.access import Credentials, TooManyLogins, User
from headwater.core.loop import linger
from headwater.server.process import sockets
from headwater.server.users.accounts import Account, AccountDirectory, read_grant
from headwater.server.users.guard import AccountGuard
from headwater.storage.memory import MemoryState
from tests.passwords import HASH, PASSWORD

from ..asking import EARLIEST, drained, message, payloads, put
from ..certificates import Authority, Certificate
from ..served import Served

ACCOUNTS = [
    Account("alice", (read_grant("all:*"),), password=HASH),
    Account("reader", (read_grant("read:orders"),), password=HASH),
    Account("appender", (read_grant("append:orders"),), password=HASH),
    Account("nobody", (), password=HASH),
]
ALICE, READER, APPENDER, NOBODY = (f"{account.name}:correct%20horse@" for account in ACCOUNTS)


def guard(*accounts: Account, allows_anybody: bool = True) -> AccountGuard:
    return AccountGuard(AccountDirectory(accounts, MemoryState()), allows_anybody=allows_anybody)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Served]:
    """A server with users and a log of one event."""
    with Served(guard=guard(*ACCOUNTS)) as running:
        put(running.log("orders"), b"payload")
        put(running.log("salaries"), b"secret")
        yield running


def refusal(client: Client, what: str, address: str) -> str:
    with pytest.raises(AmqpError) as refused:
        getattr(client, what)(address)
    return refused.value.condition


def connected(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), 10)


def read_to_end(connection: socket.socket) -> bytes:
    with connection:
        received = b""
        while data := connection.recv(65536):
            received += data
        return received


def sasl_frame(performative: sasl.SaslFrame) -> bytes:
    return frame(0, bytes(sasl.encode_sasl(performative)), 1)


# Who gets in


@pytest.mark.parametrize("user", ["", "anybody:any%20password@"])
def test_without_users_everybody_gets_in(served: Served, user: str) -> None:
    with served.client(user) as client:
        assert client.sender("orders").send(message()) == Accepted()


def test_without_users_sasl_may_be_left_out(served: Served) -> None:
    with connected(served) as plain:
        plain.sendall(AMQP_HEADER + frame(0, bytes(encode_performative(Open("plain")))))
        assert plain.recv(8, socket.MSG_WAITALL) == AMQP_HEADER
        assert plain.recv(8, socket.MSG_WAITALL)[5:] == b"\x00\x00\x00"


def test_a_user_gets_in_by_name_and_password(guarded: Served) -> None:
    with guarded.client(ALICE) as client:
        assert payloads(drained(client, client.receiver("orders", credit=0, filter=EARLIEST)))[0] == b"payload"


@pytest.mark.parametrize("user", ["", "alice:wrong@", "mallory:correct%20horse@", "alice:correct%20horse%20@"])
def test_others_are_refused(guarded: Served, user: str) -> None:
    with pytest.raises(AmqpError) as refused:
        guarded.client(user)
    assert refused.value.condition == conditions.UNAUTHORIZED_ACCESS


def test_without_sasl_a_server_with_users_answers_with_its_header_and_closes(guarded: Served) -> None:
    plain = connected(guarded)
    plain.sendall(AMQP_HEADER + frame(0, bytes(encode_performative(Open("plain")))))
    assert read_to_end(plain) == SASL_HEADER


def test_only_plain_is_offered_where_there_are_users(guarded: Served, served: Served) -> None:
    for server, expected in ((guarded, ("PLAIN",)), (served, ("PLAIN", "ANONYMOUS"))):
        with connected(server) as connection:
            connection.sendall(SASL_HEADER)
            assert connection.recv(8, socket.MSG_WAITALL) == SASL_HEADER
            head = connection.recv(8, socket.MSG_WAITALL)
            body = connection.recv(int.from_bytes(head[:4]) - 8, socket.MSG_WAITALL)
            offered = sasl.decode_sasl(body, 0, len(body))
            assert tuple(map(str, offered.sasl_server_mechanisms)) == expected


def test_a_client_may_send_all_at_once(guarded: Served) -> None:
    """It need not wait for the verdict, nor for a header."""
    init = sasl.SaslInit("PLAIN", sasl.plain("alice", PASSWORD))
    opened = frame(0, bytes(encode_performative(Open("eager"))))
    with connected(guarded) as eager:
        eager.sendall(SASL_HEADER + sasl_frame(init) + AMQP_HEADER + opened)
        received = b""
        while AMQP_HEADER not in received or not received.partition(AMQP_HEADER)[2][8:]:
            data = eager.recv(65536)
            assert data, received
            received += data


def test_plain_may_come_as_the_answer_to_a_challenge(guarded: Served) -> None:
    with connected(guarded) as slow:
        slow.sendall(SASL_HEADER + sasl_frame(sasl.SaslInit("PLAIN")))
        slow.sendall(sasl_frame(sasl.SaslResponse(sasl.plain("alice", PASSWORD))))
        slow.sendall(AMQP_HEADER)
        received = b""
        while not received.endswith(AMQP_HEADER):
            data = slow.recv(65536)
            assert data, received
            received += data
        assert sasl_frame(sasl.SaslOutcome(code=0)) in received


@pytest.mark.parametrize("mechanism", ["EXTERNAL", "ANONYMOUS", "SCRAM-SHA-256", ""])
def test_a_mechanism_that_is_not_offered_is_refused(guarded: Served, mechanism: str) -> None:
    connection = connected(guarded)
    connection.sendall(SASL_HEADER + sasl_frame(sasl.SaslInit(mechanism, b"alice")))
    assert read_to_end(connection).endswith(sasl_frame(sasl.SaslOutcome(code=1)))


@pytest.mark.parametrize("mechanism", ["EXTERNAL", "SCRAM-SHA-256", "GSSAPI"])
def test_a_mechanism_that_is_not_offered_is_refused_at_once(guarded: Served, mechanism: str) -> None:
    """The client is not asked for more, though it has said nothing yet (5.3.3.2)."""
    connection = connected(guarded)
    connection.sendall(SASL_HEADER + sasl_frame(sasl.SaslInit(mechanism)))
    received = read_to_end(connection)
    assert received.endswith(sasl_frame(sasl.SaslOutcome(code=sasl.AUTH)))
    assert sasl_frame(sasl.SaslChallenge(b"")) not in received


def test_a_login_that_was_not_looked_at_is_no_wrong_password() -> None:
    class Crowded(AccountGuard):
        async def authenticate(self, credentials: Credentials | None, peer: str) -> User:
            raise TooManyLogins(2.0)

    crowded = Crowded(AccountDirectory(ACCOUNTS, MemoryState()), allows_anybody=False)
    with Served(guard=crowded) as running:
        connection = connected(running)
        connection.sendall(SASL_HEADER + sasl_frame(sasl.SaslInit("PLAIN", sasl.plain("alice", PASSWORD))))
        assert read_to_end(connection).endswith(sasl_frame(sasl.SaslOutcome(code=sasl.SYS_TEMP)))
        with pytest.raises(AmqpError, match="try again") as refused:
            running.client(ALICE)
        assert refused.value.condition == conditions.RESOURCE_LIMIT_EXCEEDED


def test_time_that_the_server_takes_for_a_login_is_not_the_peers() -> None:
    """The login of a peer who waits behind others may take longer than a peer may."""

    class Slow(AccountGuard):
        async def authenticate(self, credentials: Credentials | None, peer: str) -> User:
            await asyncio.sleep(4 * TICK_S)
            return await super().authenticate(credentials, peer)

    slow = Slow(AccountDirectory(ACCOUNTS, MemoryState()), allows_anybody=False)
    with Served(guard=slow, settings=AmqpSettings(login_ms=1000)) as running:
        running.log("orders")
        with running.client(ALICE) as client:
            assert client.sender("orders").send(message()) == Accepted()


OF_ANOTHER = b"reader\0alice\0" + PASSWORD.encode()
"""Alice, who wants to act as somebody else."""


@pytest.mark.parametrize("response", [OF_ANOTHER, b"", b"alice", b"\0alice", b"\0\xff\0x", b"\0alice\0" + b"x" * 5000])
def test_a_plain_message_that_does_not_fit_is_refused(guarded: Served, response: bytes) -> None:
    connection = connected(guarded)
    connection.sendall(SASL_HEADER + sasl_frame(sasl.SaslInit("PLAIN", response)))
    assert read_to_end(connection).endswith(sasl_frame(sasl.SaslOutcome(code=1)))


# What they may do


def test_reading_and_appending_are_rights_of_their_own(guarded: Served) -> None:
    with guarded.client(READER) as reader, guarded.client(APPENDER) as appender:
        assert appender.sender("orders").send(message(b"more")) == Accepted()
        received = drained(reader, reader.receiver("orders", credit=0, filter=EARLIEST))
        assert payloads(received)[0] == b"payload"
        assert refusal(reader, "sender", "orders") == conditions.UNAUTHORIZED_ACCESS
        assert refusal(appender, "receiver", "orders") == conditions.UNAUTHORIZED_ACCESS
        assert refusal(appender, "receiver", "orders/$info") == conditions.UNAUTHORIZED_ACCESS
        assert reader.receiver("orders/$info").take(1)


def test_a_right_is_for_its_logs(guarded: Served) -> None:
    with guarded.client(READER) as reader, guarded.client(NOBODY) as nobody:
        assert refusal(reader, "receiver", "salaries") == conditions.UNAUTHORIZED_ACCESS
        assert refusal(nobody, "receiver", "orders") == conditions.UNAUTHORIZED_ACCESS
        assert reader.receiver("orders") is not None


def test_who_has_no_right_does_not_learn_which_logs_there_are(guarded: Served) -> None:
    with guarded.client(READER) as reader:
        assert refusal(reader, "receiver", "nowhere") == refusal(reader, "receiver", "salaries")
    with guarded.client(ALICE) as alice:
        assert refusal(alice, "receiver", "nowhere") == conditions.NOT_FOUND


def test_each_message_without_target_address_needs_the_right(guarded: Served) -> None:
    with guarded.client(APPENDER) as appender:
        messages = [Message([b"x"], DATA, properties=Properties(to=to)) for to in ("orders", "salaries", "orders")]
        states = appender.sender(None).send_all(messages)
        assert [type(state) for state in states] == [Accepted, Rejected, Accepted]
        assert states[1].error.condition == conditions.UNAUTHORIZED_ACCESS
    assert guarded.log("salaries").head() == 1


def test_positions_of_durable_links_are_of_their_user(guarded: Served) -> None:
    """Another user who calls itself by the same container id neither steals the link nor moves its position."""
    log = guarded.log("orders")
    with guarded.client(ALICE, container_id="shop") as alice, guarded.client(READER, container_id="shop") as reader:
        source = {"durable": 2, "expiry_policy": "never"}
        options = {"credit": 0, "name": "subscription", "filter": EARLIEST, "source": source}
        first, second = alice.receiver("orders", **options), reader.receiver("orders", **options)
        assert len(drained(alice, first)) == len(drained(reader, second)) == log.head()
        assert first.error is None


# How long, and how many


@pytest.mark.parametrize("sent", [b"", b"AMQP", SASL_HEADER, AMQP_HEADER, AMQP_HEADER + b"\0\0"])
def test_a_peer_that_does_not_open_in_time_is_cut_off(sent: bytes) -> None:
    with Served(settings=AmqpSettings(login_ms=100)) as served:
        silent = connected(served)
        silent.sendall(sent)
        read_to_end(silent)


def test_only_so_many_connections_are_taken() -> None:
    with Served(settings=AmqpSettings(connections_max=2)) as served:
        served.log("orders")
        with served.client() as first, served.client():
            with pytest.raises(OSError):
                served.client()
            assert first.sender("orders").send(message()) == Accepted()
        with served.client() as again:
            assert again.sender("orders").send(message()) == Accepted()


def test_above_the_limit_an_administrator_is_served_and_nobody_else() -> None:
    with Served(guard=guard(*ACCOUNTS), settings=AmqpSettings(connections_max=1)) as served:
        served.log("orders")
        with served.client(READER):
            with pytest.raises(AmqpError, match="accepts only administrators now") as refused:
                served.client(READER).sender("orders")
            assert refused.value.condition == conditions.RESOURCE_LIMIT_EXCEEDED
            with served.client(ALICE) as administrator:
                assert administrator.sender("orders").send(message()) == Accepted()
            silent = [connected(served) for _ in range(SURPLUS_OF_PLACE_MAX + 1)]
            assert read_to_end(silent.pop()) == b""  # others of that place could not log in any more
            for each in silent:
                each.close()


# TLS


class Certificates:
    """All that these tests need."""

    def __init__(self, directory: Path) -> None:
        for name in ("ours", "theirs"):
            (directory / name).mkdir()
        self.authority = Authority(directory / "ours", "our authority")
        self.stranger = Authority(directory / "theirs", "another authority").issue("alice")
        self.server = self.authority.issue("server", "IP:127.0.0.1")
        self.host = self.authority.issue("host", "DNS:localhost")
        self.alice, self.mallory = self.authority.issue("alice"), self.authority.issue("mallory")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secured(certificates: Certificates) -> Iterator[Served]:
    """A server with TLS, users, a second host name, and client certificates."""
    made = certificates
    hosts = (f"localhost={made.host.file}:{made.host.key}",)
    tls = sockets.Certificates(sockets.Tls(made.server.file, made.server.key, hosts, made.authority.own.file)).context
    with Served(guard=guard(*ACCOUNTS), tls=tls) as running:
        put(running.log("orders"), b"payload")
        yield running


def test_tls_and_a_password(secured: Served, certificates: Certificates) -> None:
    with secured.client(READER, tls=certificates.authority.context()) as client:
        assert payloads(client.receiver("orders", filter=EARLIEST).take(1)) == [b"payload"]


def test_large_messages_over_tls(secured: Served, certificates: Certificates) -> None:
    secured.log("large")
    with secured.client(ALICE, tls=certificates.authority.context()) as client:
        receiver = client.receiver("large")
        body = bytes(range(256)) * 3000
        assert client.sender("large").send_all([message(body)] * 5) == [Accepted()] * 5
        assert payloads(receiver.take(5)) == [body] * 5


def test_the_certificate_is_that_of_the_host_name(secured: Served, certificates: Certificates) -> None:
    def common_name(host: str) -> str:
        context = certificates.authority.context()
        context.check_hostname = False
        with context.wrap_socket(connected(secured), server_hostname=host) as connection:
            return dict(part[0] for part in connection.getpeercert()["subject"])["commonName"]

    assert [common_name(host) for host in ("localhost", "LOCALHOST", "127.0.0.1", "elsewhere.example")] == [
        "host", "host", "server", "server",
    ]  # fmt: skip
    with Client(f"amqps://{READER}localhost:{secured.port}", tls=certificates.authority.context()) as client:
        assert client.receiver("orders") is not None


def test_a_client_certificate_is_a_login(secured: Served, certificates: Certificates) -> None:
    with secured.client(tls=certificates.authority.context(certificates.alice)) as alice:
        assert payloads(alice.receiver("orders", filter=EARLIEST).take(1)) == [b"payload"]
        (transport,) = secured.container.connections
        assert transport.user.name == "alice"


def test_with_a_client_certificate_a_password_still_counts(secured: Served, certificates: Certificates) -> None:
    with secured.client(READER, tls=certificates.authority.context(certificates.alice)) as reader:
        assert refusal(reader, "sender", "orders") == conditions.UNAUTHORIZED_ACCESS


def refused_login(secured: Served, certificates: Certificates, own: Certificate | None) -> None:
    with pytest.raises(AmqpError) as refused:
        secured.client(tls=certificates.authority.context(own))
    assert refused.value.condition == conditions.UNAUTHORIZED_ACCESS


def test_a_certificate_of_no_user_is_refused(secured: Served, certificates: Certificates) -> None:
    refused_login(secured, certificates, certificates.mallory)


def test_without_a_certificate_external_is_not_offered(secured: Served, certificates: Certificates) -> None:
    refused_login(secured, certificates, None)


def test_a_certificate_speaks_for_its_own_name_only(
    secured: Served, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linger, "_LOOK_S", 0.05)
    monkeypatch.setattr(linger, "LINGER_PAUSE_S", 0.0)
    context = certificates.authority.context(certificates.mallory)
    connection = context.wrap_socket(connected(secured), server_hostname="127.0.0.1")
    connection.sendall(SASL_HEADER + sasl_frame(sasl.SaslInit("EXTERNAL", b"alice")))
    assert read_to_end(connection).endswith(sasl_frame(sasl.SaslOutcome(code=1)))


def test_a_certificate_of_another_authority_is_refused(secured: Served, certificates: Certificates) -> None:
    with pytest.raises(OSError):
        secured.client(tls=certificates.authority.context(certificates.stranger))
    with secured.client(READER, tls=certificates.authority.context()) as client:
        assert client.receiver("orders") is not None


def test_a_client_without_tls_is_cut_off(secured: Served) -> None:
    plain = connected(secured)
    plain.sendall(AMQP_HEADER)
    with contextlib.suppress(ConnectionResetError):
        assert AMQP_HEADER not in read_to_end(plain)
    with pytest.raises((AmqpError, OSError)):
        Client(f"amqp://127.0.0.1:{secured.port}", timeout_s=5)
