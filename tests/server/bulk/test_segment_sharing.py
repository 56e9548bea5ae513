"""The socket at which segments are lent: a code is good once, soon, and for one user of the operating system."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from headwater.core.access import ANYBODY, User
from headwater.core.errors import PositionTrimmed
from headwater.flight.calls.segment_sharing import take
from headwater.flight.client import BulkClient
from headwater.flight.wire import LendBody, Lender, Ticket
from headwater.server.bulk import segment_sharing
from headwater.server.bulk.segment_sharing import Lending
from headwater.storage.read.segment_sharing import CAN_LEND, Lent, Loan

from ..running import RunningServer

pytestmark = pytest.mark.skipif(not CAN_LEND, reason="this system has no sockets without a path")
NOTHING: tuple[bytes, list[int]] = (b"", [])


class Library:
    """Lends a file of one word, and knows who borrowed."""

    def __init__(self) -> None:
        self.asked: list[tuple[LendBody, int]] = []
        self.error: Exception | None = None

    def lend(self, user: User, body: LendBody, pid: int) -> Lent | None:
        self.asked.append((body, pid))
        if self.error is not None:
            raise self.error
        word = os.memfd_create("word")
        os.pwrite(word, b"word", 0)
        return Lent(Loan(body.after, body.upto, ()), (word,))


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def desk(library: Library) -> Iterator[Lending]:
    desk = Lending(library.lend)
    yield desk
    desk.close()


def body(uid: int | None = None) -> LendBody:
    return LendBody("orders", 0, 10, "i", os.getuid() if uid is None else uid)


def test_whoever_shows_the_code_gets_the_descriptors(desk: Lending, library: Library) -> None:
    message, descriptors = take(desk.lender(ANYBODY, body()))

    assert message == b'{"after":0,"upto":10,"segments":[]}'
    assert [os.pread(descriptor, 10, 0) for descriptor in descriptors] == [b"word"]
    assert library.asked == [(body(), os.getpid())]
    for descriptor in descriptors:
        os.close(descriptor)


def test_a_code_is_good_once(desk: Lending, library: Library) -> None:
    lender = desk.lender(ANYBODY, body())
    for descriptor in take(lender)[1]:
        os.close(descriptor)
    desk.lender(ANYBODY, body())  # somebody of that user may still come

    assert take(lender) == NOTHING
    assert len(library.asked) == 1


def test_another_code_gets_nothing(desk: Lending, library: Library) -> None:
    lender = desk.lender(ANYBODY, body())

    assert take(Lender(lender.socket, "0" * len(lender.code))) == NOTHING
    assert not library.asked


def test_a_code_of_another_user_of_the_system_gets_nothing(desk: Lending, library: Library) -> None:
    desk.lender(ANYBODY, body())
    lender = desk.lender(ANYBODY, body(uid=os.getuid() + 1))

    assert take(lender) == NOTHING
    assert not library.asked


def test_a_code_is_not_good_for_long(desk: Lending, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    lender = desk.lender(ANYBODY, body())
    later = time.monotonic() + segment_sharing.CODE_S + 1
    monkeypatch.setattr(segment_sharing.time, "monotonic", lambda: later)

    assert take(lender) == NOTHING
    assert not library.asked


def test_what_cannot_be_lent_is_not(desk: Lending, library: Library) -> None:
    library.error = PositionTrimmed(1, 5)

    assert take(desk.lender(ANYBODY, body())) == NOTHING
    assert len(library.asked) == 1


def test_only_so_many_codes_are_out(desk: Lending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_sharing, "CODES_MAX", 2)

    assert [bool(desk.lender(ANYBODY, body()).socket) for _ in range(3)] == [True, True, False]


def test_nobody_takes_all_codes_from_the_others(desk: Lending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_sharing, "CODES_OF_ONE_MAX", 1)
    other = replace(ANYBODY, name="other")

    codes = [desk.lender(user, body()) for user in (ANYBODY, ANYBODY, other)]

    assert [bool(each.socket) for each in codes] == [True, False, True]


def test_a_name_that_no_log_can_have_is_refused_before_it_is_kept() -> None:
    given = {"log": "a" * 1025, "after": 0, "upto": 1, "incarnation": "", "uid": 0}

    with pytest.raises(msgspec.ValidationError, match="length <= 1024"):
        msgspec.convert(given, LendBody)


def test_a_socket_that_is_not_there_is_an_error(desk: Lending) -> None:
    with pytest.raises(ConnectionRefusedError):
        take(Lender(f"headwater-{32 * '0'}", 64 * "0"))


def test_a_server_that_is_told_so_lends_nothing(tmp_path: Path) -> None:
    settings = ("--flight-enabled", "true", "--flight-port", "0", "--flight-lends", "false")
    with (
        RunningServer("--data", "data", "--log", "orders", *settings, cwd=tmp_path) as running,
        BulkClient(running.further_url("grpc")) as bulk,
    ):
        ticket = Ticket("orders", after=0, upto=0, incarnation=bulk.head("orders").incarnation)

        assert bulk.lender(ticket, os.getuid()) == Lender()


def test_the_server_is_sent_nowhere_else(desk: Lending) -> None:
    lender = desk.lender(ANYBODY, body())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        name = f"another-program-{os.getpid()}"
        other.bind(b"\0" + name.encode())
        other.listen()

        for told in (Lender(name, lender.code), Lender(lender.socket, "rm everything")):
            with pytest.raises(OSError, match="not a lender's socket, or an invalid code"):
                take(told)
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()


def test_who_connects_and_says_nothing_takes_few_descriptors(
    desk: Lending, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_sharing, "SILENT_S", 60.0)
    lender = desk.lender(ANYBODY, body())
    with contextlib.ExitStack() as opened:
        silent = [opened.enter_context(connected(lender)) for _ in range(3 * segment_sharing.UNDER_WAY_MAX)]
        refused = [sock for sock in silent[segment_sharing.UNDER_WAY_MAX :] if sock.recv(1) == b""]

    assert len(refused) == 2 * segment_sharing.UNDER_WAY_MAX
    for descriptor in taken_in_the_end(desk):  # all places are free again
        os.close(descriptor)
    assert len(library.asked) == 1


def test_who_no_code_is_for_takes_no_place(desk: Lending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_sharing, "SILENT_S", 60.0)
    lender = desk.lender(ANYBODY, body(uid=os.getuid() + 1))

    with connected(lender) as silent:
        assert silent.recv(1) == b""


def test_a_service_that_may_have_no_such_socket_lends_nothing(desk: Lending, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> socket.socket:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr(segment_sharing.socket, "socket", refuse)

    assert desk.lender(ANYBODY, body()) == Lender()


def connected(lender: Lender) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(b"\0" + lender.socket.encode())
    return sock


def taken_in_the_end(desk: Lending) -> list[int]:
    while True:
        try:
            message, descriptors = take(desk.lender(ANYBODY, body()))
        except (BrokenPipeError, ConnectionResetError):  # those before have not gone yet
            continue
        if message:
            return descriptors
