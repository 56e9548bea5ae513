"""What comes first at an AMQP port of a home: a client, a server that forwards one, or somebody who pretends to.

Most tests are faults that others reported of their PROXY protocol; each names the report.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.amqp.settings import AmqpSettings
from headwater.core import Event
from headwater.server.process import event_loop
from headwater.server.replicas.origin_header import FIXED, SIGNATURE

from ...amqp.asking import EARLIEST, payloads
from ...amqp.certificates import Authority
from ...waiting import eventually
from .places import PLAIN, Place, header, primary

CLIENT = ("198.51.100.7", 50123)


@pytest.fixture
def place() -> Iterator[Place]:
    with primary() as running:
        yield running


def answer(peer: socket.socket) -> bytes:
    """What is answered first; empty if the connection ends."""
    try:
        return peer.recv(100)
    except ConnectionResetError:
        return b""


def is_refused(place: Place, peer: socket.socket, count: int = 1) -> bool:
    """Whether it was closed without a word, counted and told once, and is no connection of anybody."""
    with peer:
        assert answer(peer) == b""
    eventually(lambda: place.container.statistics.origins_refused == count)
    assert place.container.statistics.connections_refused == count
    assert [told["reason"] for told in place.refusals] == ["origin"] * count
    assert all("PROXY" in told["description"] and told["peer"] == "127.0.0.1" for told in place.refusals)
    return place.peers == []


def proxy_header(command: int = 0x21, family: int = 0x11, rest: bytes = b"", length: int | None = None) -> bytes:
    return FIXED.pack(SIGNATURE, command, family, len(rest) if length is None else length) + rest


ADDRESSES = bytes([198, 51, 100, 7, 192, 0, 2, 1]) + struct.pack(">HH", 50123, 5672)


@pytest.mark.parametrize("client", [CLIENT, ("2001:db8::7", 50123)])
def test_a_forwarded_connection_has_the_address_of_its_client(place: Place, client: tuple[str, int]) -> None:
    with place.knock(header(client), PLAIN) as peer:
        assert answer(peer) == PLAIN
        assert place.peers == [client]
    eventually(lambda: place.peers == [])


def test_a_client_without_a_header_is_served_as_it_always_was(place: Place) -> None:
    log = place.log()
    log.append([Event("E", b"0")])
    with place.client() as client:
        assert payloads(client.receiver("orders", filter=EARLIEST).take(1)) == [b"0"]
        assert [host for host, _ in place.peers] == ["127.0.0.1"]
    assert place.refusals == []


def test_a_header_of_somebody_without_the_secret_is_refused(place: Place) -> None:
    """haproxy/haproxy#2450, minekube/gate#936: whoever reached the port chose an address, to get another banned."""
    assert is_refused(place, place.knock(header(secret=b"x" * 64), PLAIN))


def test_a_copied_header_is_refused(place: Place) -> None:
    seen = header()
    with place.knock(seen, PLAIN) as peer:
        assert answer(peer) == PLAIN
    eventually(lambda: place.peers == [])
    assert is_refused(place, place.knock(seen, PLAIN))


def test_a_header_may_come_byte_by_byte(place: Place) -> None:
    """cloudamqp/lavinmq#2082, nginx/nginx#1400: one that was split was no header, or an address of the proxy."""
    with place.knock(*(bytes([byte]) for byte in header() + PLAIN)) as peer:
        assert answer(peer) == PLAIN
        assert place.peers == [CLIENT]


def test_what_follows_a_header_in_one_packet_is_the_clients(place: Place) -> None:
    """apache/trafficserver#12141, pires/go-proxyproto#12: the end of a header and the first bytes were mixed up."""
    with place.knock(header() + PLAIN) as peer:
        assert answer(peer) == PLAIN
        assert place.peers == [CLIENT]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(proxy_header(0x20, 0x00), id="LOCAL: rabbitmq/rabbitmq-server#8654"),
        pytest.param(proxy_header(0x20, 0x11, ADDRESSES), id="LOCAL with an address: sozu-proxy/sozu#1334"),
        pytest.param(proxy_header(0x21, 0x00), id="UNSPEC: pires/go-proxyproto#60"),
        pytest.param(proxy_header(0x21, 0x31, bytes(216)), id="Unix sockets: ghostunnel/ghostunnel#751"),
        pytest.param(proxy_header(0x21, 0x11, ADDRESSES), id="no proof: armon/go-proxyproto#9"),
        pytest.param(proxy_header(0x21, 0x11, ADDRESSES[:4]), id="too few addresses: MariaDB/server#4999"),
        pytest.param(
            proxy_header(0x21, 0x11, ADDRESSES + b"\xe0\xff\xff" + bytes(56)),
            id="a TLV longer than the header: kosmas-valianos/libproxyprotocol#32",
        ),
        pytest.param(proxy_header(length=65535), id="65,535 bytes are announced: neondatabase/neon#5028"),
    ],
)
def test_a_header_without_a_proof_is_refused_at_once(place: Place, sent: bytes) -> None:
    assert is_refused(place, place.knock(sent))
    with place.knock(PLAIN) as peer:
        assert answer(peer) == PLAIN


def test_another_tlv_than_the_proof_is_refused(place: Place) -> None:
    """SChernykh/p2pool#399: TLVs of a proxy in between. What the home's server did not say, is not believed."""
    whole = header()
    added = whole + b"\x04\x00\x01\x00"
    assert is_refused(place, place.knock(proxy_header(rest=added[FIXED.size :])))


def test_a_header_that_breaks_off_is_nobody(place: Place) -> None:
    """MariaDB/server#4999: a short read went on with what was in memory."""
    for count in (1, 11, 16, 40, len(header()) - 1):
        with place.knock(header()[:count]) as peer:
            peer.shutdown(socket.SHUT_WR)
            assert answer(peer) == b""
    assert place.refusals == []
    assert place.container.statistics.connections == 0


def test_a_client_behind_a_replica_adds_no_second_header(place: Place) -> None:
    """chrj/smtpd#64: a client behind the proxy sent a header of its own, and was who it wanted to be."""
    with place.knock(header() + header(("203.0.113.9", 1)) + PLAIN) as peer:
        assert answer(peer)[:4] == b"AMQP"  # the engine's answer to what is no AMQP, before it closes
        assert place.peers in ([CLIENT], [])
    eventually(lambda: place.container.statistics.faults == 1)
    assert place.container.statistics.connections == 1


def test_the_header_of_version_1_is_no_header(place: Place) -> None:
    """cloudamqp/lavinmq#118: a line of text, which nothing can prove."""
    with place.knock(b"PROXY TCP4 198.51.100.7 192.0.2.1 50123 5672\r\n" + PLAIN) as peer:
        assert answer(peer)[:4] == b"AMQP"
    eventually(lambda: place.container.statistics.faults == 1)


def test_who_sends_too_little_is_disconnected_and_holds_nobody_up() -> None:
    """minekube/gate#936: without a time limit for the header, whoever connects and is silent stays for ever."""
    with primary(settings=AmqpSettings(login_ms=300)) as place:
        silent, slow = place.knock(), place.knock(header()[:20])
        with place.knock(header(), PLAIN) as peer:
            assert answer(peer) == PLAIN
        for each in (silent, slow):
            with each:
                assert answer(each) == b""
        eventually(lambda: [told["reason"] for told in place.refusals] == ["timeout", "timeout"])


def test_the_silent_of_one_place_make_way_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop, "OPENING_OF_PLACE_MAX", 2)
    monkeypatch.setattr(event_loop, "HANDSHAKE_S", 0.0)
    with primary() as place:
        silent = [place.knock() for _ in range(5)]
        with place.knock(PLAIN) as peer:
            assert answer(peer) == PLAIN
        for each in silent:
            each.close()


def test_a_check_that_only_connects_is_no_connection(place: Place) -> None:
    """cloudamqp/amqproxy#179: checks of a TCP port filled the log with errors."""
    for _ in range(3):
        place.knock().close()
    with place.knock(PLAIN) as peer:
        assert answer(peer) == PLAIN
    assert (place.container.statistics.connections, place.refusals) == (1, [])


def test_tls_follows_the_header(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    own = authority.issue("server", "IP:127.0.0.1")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(own.file, own.key)
    with primary(tls=tls) as place:
        for first in ((header(),), ()):
            with authority.context().wrap_socket(place.knock(*first), server_hostname="127.0.0.1") as peer:
                peer.sendall(PLAIN)
                assert answer(peer) == PLAIN
                assert [host for host, _ in place.peers] == [CLIENT[0] if first else "127.0.0.1"]
            eventually(lambda: place.peers == [])
        assert is_refused(place, place.knock(header(secret=b"x" * 64)))
