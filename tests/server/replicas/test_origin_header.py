"""A client's address is believed by a proof that somebody knows the home's secret, once, and for a short time."""

from __future__ import annotations

import struct

import pytest

from headwater.homes.home_secret import BEFORE_KEY, RENEWAL_MS, SECRET_KEY, SECRET_KIND, HomeSecret
from headwater.server.replicas import origin_header as headers
from headwater.server.replicas.origin_header import (
    FIXED,
    SIGNATURE,
    TIME_OFF_MS_MAX,
    OriginRefused,
    Origins,
    bytes_after,
    origin_header,
)
from headwater.storage.memory import MemoryState

SECRET, BEFORE, OTHER = b"7" * 64, b"6" * 64, b"5" * 64
CLIENT, REPLICA = ("198.51.100.7", 50123), ("192.0.2.1", 5672)
NOW_MS = 1_800_000_000_000


class Clock:
    """The home's time, as the primary knows it."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def home(clock: Clock, *secrets: bytes) -> HomeSecret:
    """The secret of a home, renewed a moment ago if it has had several."""
    state = MemoryState()
    if secrets:
        state.put(SECRET_KIND, SECRET_KEY, secrets[0])
    if secrets[1:]:
        state.put(SECRET_KIND, BEFORE_KEY, b"%d %b" % (clock.ms, secrets[1]))
    return HomeSecret(state, clock)


def origins(clock: Clock, secret: HomeSecret | None = None) -> Origins:
    """A primary that began to listen a second ago."""
    clock.ms -= 1000
    found = Origins(secret or home(clock, SECRET), clock)
    clock.ms += 1000
    return found


def header(secret: bytes = SECRET, now_ms: int = NOW_MS, nonce: bytes | None = None) -> bytes:
    return origin_header(secret, CLIENT, REPLICA, now_ms, nonce)


@pytest.mark.parametrize(
    ("client", "believed"),
    [
        (CLIENT, CLIENT),
        (("2001:db8::7", 50123), ("2001:db8::7", 50123)),
        (("fe80::7%eth0", 1), ("fe80::7", 1)),  # the interface is the replica's
    ],
)
def test_the_address_and_port_of_a_client_are_believed(
    clock: Clock, client: tuple[str, int], believed: tuple[str, int]
) -> None:
    replica = ("2001:db8::1", 5672) if ":" in client[0] else REPLICA
    sent = origin_header(SECRET, client, replica, NOW_MS)
    assert bytes_after(sent[: FIXED.size]) == len(sent) - FIXED.size
    assert origins(clock).believe(sent) == believed


def test_it_is_laid_out_as_the_specification_says() -> None:
    sent = header(nonce=b"n" * 16)
    signature, command, family, length = struct.unpack_from(">12sBBH", sent)
    assert signature == b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a"
    assert (command, family, length) == (0x21, 0x11, len(sent) - 16)
    assert sent[16:28] == bytes([198, 51, 100, 7, 192, 0, 2, 1]) + struct.pack(">HH", 50123, 5672)
    kind, size = struct.unpack_from(">BH", sent, 28)
    assert 0xE0 <= kind <= 0xEF
    assert 28 + 3 + size == len(sent)


def test_the_secret_is_not_sent_and_no_two_headers_are_the_same() -> None:
    sent = header()
    assert SECRET not in sent
    assert bytes.fromhex(SECRET.decode()) not in sent
    assert header() != sent


@pytest.mark.parametrize("place", range(len(header())))
def test_a_header_with_another_bit_is_refused(clock: Clock, place: int) -> None:
    sent = bytearray(header())
    sent[place] ^= 1
    with pytest.raises(OriginRefused):
        bytes_after(bytes(sent[: FIXED.size]))
        origins(clock).believe(bytes(sent))


def test_the_secret_before_a_renewal_counts_and_no_other_does(clock: Clock) -> None:
    primary = origins(clock, home(clock, SECRET, BEFORE))
    assert primary.believe(header(SECRET)) == CLIENT
    assert primary.believe(header(BEFORE)) == CLIENT
    for secret in (OTHER, b"", SECRET[:-1]):
        with pytest.raises(OriginRefused, match="a secret other than"):
            primary.believe(header(secret))
    clock.ms += RENEWAL_MS
    with pytest.raises(OriginRefused, match="a secret other than"):
        primary.believe(header(BEFORE, clock.ms))
    with pytest.raises(OriginRefused, match="a secret other than"):
        origins(clock, home(clock)).believe(header())


def test_a_copy_of_a_header_is_refused(clock: Clock) -> None:
    primary, sent = origins(clock), header()
    assert primary.believe(sent) == CLIENT
    clock.ms += TIME_OFF_MS_MAX
    with pytest.raises(OriginRefused, match="repeated"):
        primary.believe(sent)
    clock.ms += 1
    with pytest.raises(OriginRefused, match="off the home's"):
        primary.believe(sent)


@pytest.mark.parametrize("off_ms", [-TIME_OFF_MS_MAX, 0, TIME_OFF_MS_MAX])
def test_clocks_may_be_apart(clock: Clock, off_ms: int) -> None:
    primary = Origins(home(clock, SECRET), clock)
    clock.ms += TIME_OFF_MS_MAX + 1  # it listens for long
    assert primary.believe(header(now_ms=clock.ms + off_ms)) == CLIENT
    with pytest.raises(OriginRefused, match="off the home's"):
        primary.believe(header(now_ms=clock.ms + (off_ms or 1) * 2 * TIME_OFF_MS_MAX))


def test_what_was_sent_to_an_earlier_primary_is_refused_by_the_next(clock: Clock) -> None:
    sent = header()
    assert origins(clock).believe(sent) == CLIENT
    clock.ms += 2
    with pytest.raises(OriginRefused, match="before this server started to listen"):
        Origins(home(clock, SECRET), clock).believe(sent)


def test_few_are_remembered_and_the_forgotten_are_refused_all_the_same(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers, "SEEN_MAX", 3)
    primary, sent = origins(clock), [header(now_ms=NOW_MS + number) for number in range(10)]
    for each in sent:
        assert primary.believe(each) == CLIENT
    assert len(primary._seen) <= 3
    for each in sent:
        with pytest.raises(OriginRefused, match="repeated"):
            primary.believe(each)


def test_what_is_too_old_to_be_believed_is_not_remembered(clock: Clock) -> None:
    primary = origins(clock)
    for _ in range(5):
        primary.believe(header(now_ms=clock.ms))
        clock.ms += TIME_OFF_MS_MAX + 1
    assert len(primary._seen) == 1


@pytest.mark.parametrize(
    "fixed",
    [
        FIXED.pack(b"\r\n\r\n\0\r\nQUIT\r", 0x21, 0x11, 12),
        FIXED.pack(SIGNATURE, 0x11, 0x11, 71),  # version 1
        FIXED.pack(SIGNATURE, 0x20, 0x11, 71),  # LOCAL
        FIXED.pack(SIGNATURE, 0x21, 0x00, 59),  # UNSPEC
        FIXED.pack(SIGNATURE, 0x21, 0x12, 71),  # UDP
        FIXED.pack(SIGNATURE, 0x21, 0x31, 275),  # Unix sockets
        FIXED.pack(SIGNATURE, 0x21, 0x11, 12),  # nothing behind the addresses
        FIXED.pack(SIGNATURE, 0x21, 0x11, 95),  # addresses of the other family
        FIXED.pack(SIGNATURE, 0x21, 0x11, 65535),
    ],
)
def test_what_can_have_no_proof_is_refused_before_it_is_read(fixed: bytes) -> None:
    with pytest.raises(OriginRefused):
        bytes_after(fixed)
