"""Several addresses of one server: what fails at one goes on at another, once, in order, and without hammering any."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from tests.client.served_memory import CuttingProxy, ServedMemory
from tests.contract.awaited import AwaitedLog, LoopThread
from tests.waiting import eventually

from headwater import client
from headwater.client import ServerUnreachable, aio
from headwater.client.protocol.targets import HOPS_MAX, NAMED_MAX, Targets
from headwater.client.protocol.terms import terms_of
from headwater.core import AppendCondition, Event, Query, errors
from headwater.core.errors import OutcomeUnknown
from headwater.formats.clients.address import urls_of
from headwater.formats.clients.answer import Answer
from headwater.formats.clients.retry import PAUSE_S_MAX, PAUSE_S_MIN
from headwater.storage.memory import MemoryStore

Open = Callable[..., Any]


@pytest.fixture(params=["blocking", "asyncio"])
def opened(request: pytest.FixtureRequest) -> Iterator[Open]:
    """`opened(*urls)` is the log `orders` of a server with these addresses, whoever waits for its answers."""
    with ExitStack() as closing:

        def blocking(*urls: str, **options: Any) -> Any:
            return closing.enter_context(client.connect(urls, **options)).log("orders")

        def awaited(*urls: str, **options: Any) -> Any:
            loop = LoopThread()
            closing.callback(loop.close)

            async def connected() -> aio.Server:
                return aio.connect(urls, **options)

            server = loop.wait(connected())
            closing.callback(lambda: loop.wait(server.close()))
            return AwaitedLog(server.log("orders"), loop.wait)

        yield blocking if request.param == "blocking" else awaited


@pytest.fixture
def pair(served: ServedMemory) -> Iterator[tuple[ServedMemory, ServedMemory]]:
    """Two servers of one log: whatever is in one is in the other at once."""
    served.store.create("orders")
    other = ServedMemory(served.store)
    yield served, other
    other.stop()


@contextmanager
def talking(talk: Callable[[socket.socket], None]) -> Iterator[tuple[str, list[int]]]:
    """A server that does this on each connection, and counts them."""
    accepted: list[int] = []

    def serve() -> None:
        while True:
            try:
                peer, address = listener.accept()
            except OSError:
                return
            accepted.append(address[1])
            peers.append(peer)
            with suppress(OSError):  # its client may go away with words unread
                talk(peer)

    peers: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", accepted
        listener.shutdown(socket.SHUT_RDWR)
        for peer in peers:  # what is talked to may wait for more
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        thread.join()
    for peer in peers:
        peer.close()


@contextmanager
def answering(answer: Callable[[bytes], str]) -> Iterator[str]:
    """A server that answers whatever it receives with the words of `answer`, on many connections at once."""

    def keep_answering(peer: socket.socket) -> None:
        with suppress(OSError):  # it was closed meanwhile, or its client went away
            while received := peer.recv(65536):
                peer.sendall(answer(received).encode())

    def start(peer: socket.socket) -> None:
        threads.append(threading.Thread(target=keep_answering, args=(peer,)))
        threads[-1].start()

    threads: list[threading.Thread] = []
    with talking(start) as (url, _):
        yield url
    for thread in threads:
        thread.join()


@contextmanager
def naming(status: int, primary: str, seen: list[bytes] | None = None) -> Iterator[str]:
    """A server that answers every request with the name of the primary."""

    def answer(received: bytes) -> str:
        if seen is not None:
            seen.append(received)
        return f"HTTP/1.1 {status} There\r\nheadwater-primary: {primary}\r\ncontent-length: 0\r\n\r\n"

    with answering(answer) as url:
        yield url


def refusing() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def numbers(events: Any) -> list[int]:
    return [event.sequence_number for event in events]


def test_what_refuses_is_passed_over(opened: Open, pair: tuple[ServedMemory, ServedMemory]) -> None:
    log = opened(refusing(), pair[0].url)
    assert log.append([Event("A")]) == (1, 1, False)
    assert numbers(log.read()) == [1]


def test_what_stops_is_left_and_what_goes_on_stays_in_use(
    opened: Open, pair: tuple[ServedMemory, ServedMemory]
) -> None:
    first, second = pair
    log = opened(first.url, second.url)
    assert log.append([Event("A")]).last == 1
    first.stop()
    try:
        assert log.append([Event("B")]).last == 2
        assert numbers(log.read()) == [1, 2]
    finally:
        first.start()
    assert log.append([Event("C")]).last == 3


@contextmanager
def losing(upstream_port: int, kept_bytes: int = 0) -> Iterator[tuple[str, list[bytes]]]:
    """A way to a server that loses the answers of appends, but for their first bytes."""

    def lose_answers_of_appends(peer: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", upstream_port)) as upstream:
            while request := peer.recv(65536):
                upstream.sendall(request)
                answer, parsed = b"", Answer()
                while not parsed.is_complete:
                    answer += (piece := upstream.recv(65536))
                    parsed.receive_data(piece)
                if b"/append " in request:
                    lost.append(answer)
                    peer.sendall(answer[:kept_bytes])
                    peer.shutdown(socket.SHUT_RDWR)
                    return
                peer.sendall(answer)

    lost: list[bytes] = []
    with talking(lose_answers_of_appends) as (url, _):
        yield url, lost


@pytest.mark.parametrize("kept_bytes", [0, 20])
def test_an_append_whose_answer_was_lost_is_stored_once(
    opened: Open, pair: tuple[ServedMemory, ServedMemory], kept_bytes: int
) -> None:
    with losing(pair[0].port, kept_bytes) as (url, lost):
        log = opened(url, pair[1].url)
        appended = log.append([Event("A")], AppendCondition(Query.where(types=["A"])))
    assert len(lost) == 1
    assert appended == (1, 1, True), "the log knew its id"
    assert numbers(log.read()) == [1]


@pytest.mark.parametrize("has_another", [False, True])
def test_an_append_whose_answer_was_lost_is_not_settled_by_a_server_without_that_log(
    opened: Open, served: ServedMemory, has_another: bool
) -> None:
    """A replica that lags does not have the log yet, or has the one of before."""
    served.store.create("orders")
    behind = ServedMemory()
    if has_another:
        behind.store.create("orders")
    try:
        unknown = pytest.raises(OutcomeUnknown, match="it is unknown whether the events are in log 'orders'")
        with losing(served.port) as (url, _), unknown:
            opened(url, behind.url).append([Event("A")])
    finally:
        behind.stop()
    assert served.store.open("orders").head() == 1, "they were"


def test_a_read_that_breaks_goes_on_at_another_address_without_gap_or_double(
    opened: Open, pair: tuple[ServedMemory, ServedMemory], cutting: Callable[..., CuttingProxy]
) -> None:
    _, second = pair
    filling = opened(second.url)
    filling.append([Event("A", b"x" * 200) for _ in range(4000)])
    proxy = cutting(250_000)
    log = opened(proxy.url, second.url)
    reading = log.read()
    filling.append([Event("A")])
    assert numbers(reading) == list(range(1, 4001))
    assert not proxy.cuts, "it was cut"


def test_a_subscription_goes_on_at_another_address_by_number(
    opened: Open, pair: tuple[ServedMemory, ServedMemory]
) -> None:
    first, second = pair
    filling = opened(second.url)
    with opened(first.url, second.url).subscribe() as subscription:
        filling.append([Event("A")] * 3)
        assert numbers(subscription.poll(10)) == [1, 2, 3]
        assert subscription.poll(0.05) == ()
        first.stop()
        try:
            filling.append([Event("A")] * 2)
            seen: list[int] = []
            while len(seen) < 2:
                seen += numbers(subscription.poll(10))
            filling.append([Event("A")])
            while len(seen) < 3:
                seen += numbers(subscription.poll(10))
            assert seen == [4, 5, 6]
        finally:
            first.start()


def test_what_accepts_and_says_nothing_is_left(opened: Open, pair: tuple[ServedMemory, ServedMemory]) -> None:
    with talking(lambda peer: None) as (silent, accepted):
        log = opened(silent, pair[0].url, timeout_s=0.2)
        assert log.append([Event("A")]).last == 1
        assert numbers(log.read()) == [1]
        assert len(accepted) == 1


@pytest.mark.parametrize("status", [307, 421])
def test_the_primary_that_is_named_is_followed_with_the_same_credentials(
    opened: Open, pair: tuple[ServedMemory, ServedMemory], status: int
) -> None:
    seen: list[bytes] = []
    with naming(status, pair[0].url, seen) as replica:
        log = opened(replica, user="ann", password="secret")
        assert log.append([Event("A")]).last == 1
        assert numbers(log.read()) == [1]
        with log.subscribe() as subscription:
            assert numbers(subscription.poll(10)) == [1]
    assert len(seen) == 1, "from then on the primary is asked"
    assert b"authorization: Basic " in seen[0]


def test_after_a_forwarded_answer_the_primary_that_it_names_is_asked(
    opened: Open, pair: tuple[ServedMemory, ServedMemory]
) -> None:
    seen: list[bytes] = []

    def answer(received: bytes) -> str:
        seen.append(received)
        body = '{"head": 7, "incarnation": "a"}'
        return f"HTTP/1.1 200 OK\r\nheadwater-primary: {pair[0].url}\r\ncontent-length: {len(body)}\r\n\r\n{body}"

    with answering(answer) as replica:
        log = opened(replica)
        assert log.head() == 7
        assert log.head() == 0, "the answer of the primary itself"
    assert len(seen) == 1


def test_a_replica_goes_on_forwarding_for_who_cannot_reach_the_primary(opened: Open) -> None:
    gone, seen = refusing(), []

    def answer(received: bytes) -> str:
        seen.append(received)
        body = '{"head": 7, "incarnation": "a"}'
        return f"HTTP/1.1 200 OK\r\nheadwater-primary: {gone}\r\ncontent-length: {len(body)}\r\n\r\n{body}"

    with answering(answer) as replica:
        log = opened(replica)
        assert [log.head() for _ in range(5)] == [7] * 5


def test_a_primary_that_does_not_answer_is_told(opened: Open) -> None:
    gone = refusing()
    with naming(421, gone) as replica, pytest.raises(ServerUnreachable, match=gone):
        opened(replica, retry_s=0.2).head()


def test_a_ring_of_names_ends() -> None:
    urls: list[str] = []

    def answer(received: bytes) -> str:
        name = urls[(len(asked) + 1) % 2]
        asked.append(name)
        return f"HTTP/1.1 421 No\r\nheadwater-primary: {name}\r\ncontent-length: 0\r\n\r\n"

    asked: list[str] = []
    with answering(answer) as first, answering(answer) as second:
        urls += [first, second]
        with (
            client.connect([first, second], retry_s=0) as server,
            pytest.raises(ServerUnreachable, match=f"{HOPS_MAX} servers in a row"),
        ):
            server.logs()
    assert len(asked) == HOPS_MAX


def test_without_any_answer_the_problem_of_each_address_is_told(opened: Open) -> None:
    first, second = refusing(), refusing()
    with pytest.raises(ServerUnreachable, match="111") as told:
        opened(first, second, retry_s=0.2).head()
    assert first in told.value.problem and second in told.value.problem
    assert told.value.url == f"{first},{second}"


def test_without_patience_each_address_is_asked_once(opened: Open, pair: tuple[ServedMemory, ServedMemory]) -> None:
    assert opened(refusing(), refusing(), pair[0].url, retry_s=0).head() == 0
    with pytest.raises(ServerUnreachable):
        opened(refusing(), refusing(), retry_s=0).head()


def test_no_address_is_hammered(opened: Open) -> None:
    def close(peer: socket.socket) -> None:
        peer.recv(65536)
        peer.close()

    with talking(close) as (first, to_first), talking(close) as (second, to_second):
        with pytest.raises(ServerUnreachable):
            opened(first, second, retry_s=2).head()
        # Pauses of 25 ms at least, doubling: in 2 s there is room for so many at each. TLS is looked for as often.
        assert 1 < len(to_first) <= 16 and 1 < len(to_second) <= 16


class TestOtherIncarnations:
    @pytest.fixture
    def strangers(self, served: ServedMemory) -> Iterator[tuple[ServedMemory, ServedMemory]]:
        """Two servers whose logs have a name in common, and nothing else."""
        served.store.create("orders")
        other = ServedMemory(MemoryStore())
        other.store.create("orders")
        yield served, other
        other.stop()

    def test_a_condition_is_not_judged_by_another_log(
        self, opened: Open, strangers: tuple[ServedMemory, ServedMemory]
    ) -> None:
        first, second = strangers
        log = opened(first.url, second.url)
        log.append([Event("A")])
        query = Query.where(types=["A"])
        head = log.read(query).head
        first.stop()
        try:
            with pytest.raises(errors.PositionOfOtherIncarnation, match="log orders has the incarnation"):
                log.append([Event("A")], AppendCondition(query, head))
            assert opened(second.url).head() == 0
        finally:
            first.start()

        def is_back() -> bool:
            try:
                return bool(log.head() == 1)
            except errors.PositionOfOtherIncarnation:
                return False

        eventually(is_back)

    def test_a_read_does_not_go_on_in_another_log(
        self, opened: Open, strangers: tuple[ServedMemory, ServedMemory], cutting: Callable[..., CuttingProxy]
    ) -> None:
        _, second = strangers
        for each in strangers:
            opened(each.url).append([Event("A", b"x" * 200) for _ in range(4000)])
        log = opened(cutting(250_000).url, second.url)
        with pytest.raises(errors.PositionOfOtherIncarnation):
            numbers(log.read())

    def test_a_subscription_does_not_go_on_in_another_log(
        self, opened: Open, strangers: tuple[ServedMemory, ServedMemory]
    ) -> None:
        first, second = strangers
        opened(first.url).append([Event("A")])
        with opened(first.url, second.url).subscribe() as subscription:
            assert numbers(subscription.poll(10)) == [1]
            first.stop()
            try:
                with pytest.raises(errors.PositionOfOtherIncarnation):
                    subscription.poll(10)
            finally:
                first.start()


class TestTargets:
    def targets(self, *urls: str) -> Targets[None]:
        return Targets(terms_of(urls, timeout_s=1, retry_s=1))

    def answer(self, primary: str, status: int = 421) -> Answer:
        answer = Answer()
        text = f"HTTP/1.1 {status} No\r\nheadwater-primary: {primary}\r\ncontent-length: 0\r\n\r\n"
        answer.receive_data(text.encode())
        return answer

    def test_a_rest_doubles_up_to_its_bound_and_failures_meanwhile_count_once(self) -> None:
        (target,) = self.targets("http://a")._all
        now = 100.0
        for rest_s in [PAUSE_S_MIN * 2**power for power in range(5)]:
            target.failed("away", now)
            assert now + rest_s / 2 <= target.rests_until <= now + rest_s
            until = target.rests_until
            target.failed("away", now)
            assert target.rests_until == until
            now = until
        for _ in range(10):
            target.failed("away", now)
            assert target.rests_until <= now + PAUSE_S_MAX
            now = target.rests_until
        target.succeeded()
        target.failed("away", now)
        assert target.rests_until <= now + PAUSE_S_MIN

    def test_where_all_rest_the_one_that_is_first_done_is_asked(self) -> None:
        targets = self.targets("http://a", "http://b", "http://c")
        for target, until in zip(targets._all, [3.0, 1.0, 2.0], strict=True):
            target.problem, target.rests_until = "away", 1e12 + until
        assert targets.best() is targets._all[1]

    @pytest.mark.parametrize(
        ("named", "problem"),
        [
            ("http://b", "does not use TLS"),
            ("no url", r"http://HOST\[:PORT\]"),
            ("https://ann:secret@b", "separately, not in the URL"),
            ("https://a/", "names itself"),
        ],
    )
    def test_not_every_name_is_followed(self, named: str, problem: str) -> None:
        targets = self.targets("https://a")
        with pytest.raises(OSError, match=problem):
            targets.named_by(targets.current, self.answer(named))

    def test_only_so_many_names_are_kept(self) -> None:
        targets = self.targets("http://a")
        for number in range(3 * NAMED_MAX):
            targets.named_by(targets._all[0], self.answer(f"http://b{number}"))
        assert len(targets._all) == 1 + NAMED_MAX
        assert targets.current.address.url == f"http://b{3 * NAMED_MAX - 1}"

    def test_other_answers_name_nobody(self) -> None:
        targets = self.targets("http://a")
        assert targets.named_by(targets.current, self.answer("http://b", 409)) is None


class TestUrls:
    def test_they_are_a_sequence_or_a_text_with_commas(self) -> None:
        assert urls_of("http://a:1, http://b:2/") == urls_of(["http://a:1", "http://b:2"])
        assert urls_of("http+unix:///run/a,b.sock,https://c") == ["http+unix:///run/a,b.sock", "https://c"]

    @pytest.mark.parametrize(
        ("given", "problem"),
        [
            ((), "at least one"),
            ("http://a,http://a/", "given twice"),
            ([f"http://a:{n + 1}" for n in range(65)], "at most 64 URLs"),
        ],
    )
    def test_what_is_wrong_is_said(self, given: Any, problem: str) -> None:
        with pytest.raises(errors.InvalidInput, match=problem):
            client.connect(given)
