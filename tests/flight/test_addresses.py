"""Several addresses of servers that share a home: what fails at one goes on at another, and nobody is taken back."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from headwater.core import AppendCondition, Event, LocalLog, Query
from headwater.core.access import Forbidden, Right
from headwater.core.errors import (
    EventLogError,
    InvalidInput,
    InvalidPosition,
    LogNotFound,
    NotPrimary,
    PositionOfOtherIncarnation,
    StorageUnavailable,
)
from headwater.flight.calls.address import RETRIES, BulkAddress
from headwater.flight.calls.connection import FlightConnection
from headwater.flight.calls.seen import NotHereYet
from headwater.flight.calls.tries import Tries
from headwater.flight.client import BulkClient
from headwater.flight.errors import Busy
from headwater.flight.server.limits import StreamLimits, StreamPlace
from headwater.flight.server.server import BulkServer
from headwater.flight.wire import Ticket
from headwater.formats.clients.endpoints import Endpoints
from headwater.formats.clients.retry import Attempts, ServerUnreachable
from headwater.storage.memory import MemoryStore

from .conftest import batch
from .members import Member, refusing, url_of
from .memory_backend import serving


class Home:
    """Servers of one home, over one store, and clients of all of them."""

    def __init__(self, store: MemoryStore, closing: ExitStack) -> None:
        self._closing = closing
        self.store = store
        self.replica, self.primary = Member(store), Member(store, is_primary=True)
        self.servers: list[BulkServer] = [closing.enter_context(serving(each)) for each in (self.replica, self.primary)]
        self.urls = [url_of(each) for each in self.servers]

    def client(self, *urls: str, retries: int = 2) -> BulkClient:
        return self._closing.enter_context(BulkClient(",".join(urls or self.urls), retries=retries))

    def stranger(self, events: int = 3) -> tuple[Member, str]:
        """A server of another home with a log of the same name."""
        store = MemoryStore()
        store.create("orders").append([Event("S") for _ in range(events)])
        member = Member(store, is_primary=True)
        return member, url_of(self._closing.enter_context(serving(member)))


@pytest.fixture
def home(store: MemoryStore, log: LocalLog) -> Iterator[Home]:
    with ExitStack() as closing:
        yield Home(store, closing)


def types(batches: Any) -> list[str]:
    return [each for batch in batches for each in batch.column("type").to_pylist()]


ALL = [f"E{number}" for number in range(1, 101)]


class TestReading:
    def test_what_refuses_is_passed_over_by_every_call(self, home: Home) -> None:
        calls: list[Callable[[BulkClient], Any]] = [
            lambda client: client.logs() == ["orders"],
            lambda client: client.head("orders").head == 100,
            lambda client: client.info("orders").head == 100,
            lambda client: client.count("orders") == 100,
            lambda client: client.sequence_number_at("orders", 0) == 1,
            lambda client: len(client.plan(Ticket("orders"), splits_min=4)) == 4,
            lambda client: types(client.read(Ticket("orders"))) == ALL,
        ]
        for call in calls:
            client = home.client(refusing(), home.urls[0])
            assert call(client)
            assert client.url == home.urls[0]

    def test_one_that_breaks_off_goes_on_elsewhere_after_the_last_number(self, home: Home) -> None:
        home.replica.breaks_after = 7
        assert types(home.client().read(Ticket("orders"))) == ALL
        assert (home.replica.asked.count("scan"), home.primary.asked.count("scan")) == (1, 1)

    def test_what_is_stale_or_stops_is_left(self, home: Home) -> None:
        client = home.client()
        assert client.logs() == ["orders"] and client.url == home.urls[0]
        home.replica.problem = StorageUnavailable(reason="this replica has not caught up")
        assert client.head("orders").head == 100 and client.url == home.urls[1]
        home.replica.problem = None
        assert types(client.read(Ticket("orders"))) == ALL
        assert home.replica.asked == ["logs"], "what goes on stays in use"

    def test_a_busy_server_is_left_for_another_and_waited_for_where_all_are(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        held = [home.servers[0].gets.take(f"reader {number}") for number in range(StreamLimits().gets)]
        client = home.client(retries=0)
        assert types(client.read(Ticket("orders"))) == ALL
        assert client.url == home.urls[1] and "scan" not in home.replica.asked

        take, refusals = home.servers[1].gets.take, iter([Busy("reads", 1)] * 5)
        asked, pauses, slept, pause_s = list[str](), list[float](), list[float](), Attempts.pause_s

        def full(holder: str) -> StreamPlace:
            asked.append("replica")
            raise Busy("reads", 1)

        def pausing(*arguments: Any, **how: Any) -> float:
            pauses.append(pause_s(*arguments, **how))
            return pauses[-1]

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            time.sleep(seconds)

        def refusing_at_first(holder: str) -> StreamPlace:
            asked.append("primary")
            if (refusal := next(refusals, None)) is not None:
                raise refusal
            return take(holder)

        monkeypatch.setattr(home.servers[0].gets, "take", full)
        monkeypatch.setattr(home.servers[1].gets, "take", refusing_at_first)
        monkeypatch.setattr(Attempts, "pause_s", pausing)
        monkeypatch.setattr("headwater.flight.calls.tries.Attempts", partial(Attempts, sleep=sleep))
        assert types(home.client(retries=1).read(Ticket("orders"))) == ALL, "waiting for a place is no failed attempt"
        assert asked.count("primary") == 6
        assert slept and slept == [pause for pause in pauses if pause > 0]
        assert len(asked) <= len(pauses) + 2, "a pause before each time but the first and the turn to the other server"
        for place in held:
            place.release()

    def test_readers_begin_at_all_addresses_but_the_last(self) -> None:
        address = BulkAddress("grpc://a,grpc://b,grpc://c")
        assert [address.turned(by).url for by in range(3)] == [
            "grpc://a,grpc://b,grpc://c",
            "grpc://b,grpc://a,grpc://c",
            "grpc://a,grpc://b,grpc://c",
        ]
        for few in (BulkAddress("grpc://a"), BulkAddress("grpc://a,grpc://b")):
            assert few.turned(1) == few

    def test_a_log_that_a_replica_lacks_is_asked_elsewhere_and_none_is_sure_but_all(self, home: Home) -> None:
        home.replica.lacks = True
        client = home.client()
        assert client.head("orders").head == 100
        assert (
            types(home.client().read(Ticket("orders", upto=100, incarnation=client.head("orders").incarnation))) == ALL
        )
        home.primary.lacks = True
        with pytest.raises(LogNotFound):
            home.client().head("orders")

    @pytest.mark.parametrize("call", [lambda client: client.head("orders"), lambda client: client.heads(["orders"])])
    def test_a_log_is_not_gone_while_an_address_is_away(self, home: Home, call: Callable[[BulkClient], Any]) -> None:
        """A replica that lags lacks it, and the primary, which would know, does not answer."""
        home.replica.lacks = True
        away = refusing()
        with pytest.raises(ServerUnreachable) as caught:
            call(home.client(home.urls[0], away, retries=1))
        assert f"{away}: " in str(caught.value) and f"{home.urls[0]}: there is no log 'orders'" in str(caught.value)
        home.primary.problem = StorageUnavailable(reason="it stops")
        with pytest.raises(StorageUnavailable):
            call(home.client(retries=1))

    def test_a_log_is_not_gone_while_an_address_is_busy(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nor is a primary that is busy given up before a busy server alone would be."""
        [split] = home.client(home.urls[1]).plan(Ticket("orders"))
        home.replica.lacks = True
        take, refusals = home.servers[1].gets.take, iter([Busy("reads", 1)] * 5)

        def refusing_at_first(holder: str) -> StreamPlace:
            if (refusal := next(refusals, None)) is not None:
                raise refusal
            return take(holder)

        monkeypatch.setattr(home.servers[1].gets, "take", refusing_at_first)
        assert types(home.client(retries=1).read(split.ticket)) == ALL

    def test_a_log_that_is_another_one_at_a_replica_is_no_other_while_the_primary_is_away(self, home: Home) -> None:
        """A replica that lags has the log of before, still."""
        client = home.client(home.urls[0], refusing(), retries=1)
        client.expect("orders", "the new one", 3)
        with pytest.raises(ServerUnreachable):
            client.head("orders")

    def test_a_replica_that_is_behind_is_passed_over_where_a_slice_goes_further(self, home: Home) -> None:
        [split] = home.client(home.urls[1]).plan(Ticket("orders"))
        home.replica.head = 60
        assert types(home.client().read(split.ticket)) == ALL
        assert len(home.client().plan(split.ticket)) == 1

    def test_a_replica_that_is_behind_takes_nobody_back(self, home: Home) -> None:
        client = home.client(*reversed(home.urls), retries=1)
        assert client.head("orders").head == 100
        home.replica.head = 60
        home.primary.problem = StorageUnavailable(reason="it stops")
        for call in (client.head, client.count, lambda log: client.sequence_number_at(log, 0)):
            with pytest.raises(
                NotHereYet, match=f"log 'orders' ends at 60 at {home.urls[0]}, but this client has seen event 100"
            ):
                call("orders")
        home.replica.head = None
        assert client.head("orders").head == 100 and client.url == home.urls[0]

    def test_what_is_known_from_elsewhere_is_waited_for(self, home: Home) -> None:
        client, incarnation = home.client(), home.client().head("orders").incarnation
        home.replica.head = 60
        client.expect("orders", incarnation, 80)
        assert client.head("orders").head == 100

    def test_replicas_alone_are_waited_for(self, home: Home) -> None:
        """One replica has planned, and another one is to read: the primary is not in the list."""
        [split] = home.client(home.urls[0]).plan(Ticket("orders"))
        behind = Member(home.store)
        behind.head = 60
        looks = []

        class CatchesUp(Member):
            def place(self, log: str) -> Any:
                looks.append(log)
                self.head = 60 if len(looks) < 3 else None
                return super().place(log)

        with serving(behind) as first, serving(CatchesUp(home.store)) as second:
            assert types(home.client(url_of(first), url_of(second), retries=12).read(split.ticket)) == ALL

    def test_a_position_above_every_head_is_an_error(self, home: Home) -> None:
        with pytest.raises(InvalidPosition):
            list(home.client(retries=0).read(Ticket("orders", after=500, upto=600, incarnation=None)))

    def test_another_incarnation_is_never_read(self, home: Home) -> None:
        [split] = home.client(home.urls[1]).plan(Ticket("orders"))
        _, stranger = home.stranger()
        assert types(home.client(stranger, home.urls[1]).read(split.ticket)) == ALL
        with pytest.raises(ServerUnreachable):
            list(home.client(stranger, refusing(), retries=1).read(split.ticket))
        with pytest.raises(PositionOfOtherIncarnation):
            list(home.client(stranger, retries=1).read(split.ticket))

    def test_a_log_that_is_another_one_everywhere_is_taken_for_what_it_is(self, home: Home) -> None:
        client, before = home.client(), home.client().head("orders").incarnation
        client.expect("orders", "another", 500)
        assert client.head("orders").incarnation == before

    def test_all_away_says_what_each_said(self, home: Home) -> None:
        urls = refusing(), refusing()
        with pytest.raises(ServerUnreachable) as caught:
            home.client(*urls, retries=1).logs()
        assert str(caught.value).startswith(f"no answer from {urls[0]},{urls[1]}: {urls[0]}: ")
        assert f"; {urls[1]}: " in str(caught.value)

    def test_a_client_that_is_closed_says_so(self, home: Home) -> None:
        client = home.client()
        client.logs()
        client.close()
        with pytest.raises(ServerUnreachable, match="this client was closed"):
            client.logs()

    def test_one_address_is_asked_nothing_but_what_is_meant(self, home: Home) -> None:
        client = home.client(home.urls[1])
        client.append("orders", batch("A"))
        client.count("orders")
        client.commit("orders", "w", 0, [client.stage("orders", "w", 0, 0, 0, [batch("B")]).stage])
        assert home.primary.asked == ["scan", "commit"], "the scan is that of the count"


class TestWriting:
    def test_it_goes_to_the_primary_and_stays_there(self, home: Home) -> None:
        client = home.client()
        assert client.append("orders", [batch("A"), batch("B"), batch("C")])[-1].last == 103
        assert client.url == home.urls[1]
        stage = client.stage("orders", "w", 0, 0, 0, [batch("D")])
        assert client.commit("orders", "w", 0, [stage.stage]).last == 104
        assert client.commit("orders", "w", 0, [stage.stage]).was_applied
        assert (home.replica.stages, home.primary.stages, home.primary.appends) == (0, 1, 4)
        assert client.trim("orders", 3) == 3

    @pytest.mark.parametrize("first", [0, 1])
    def test_a_stage_is_laid_down_where_it_is_committed(self, home: Home, first: int) -> None:
        urls = home.urls[first], home.urls[1 - first]
        staged = home.client(*urls).stage("orders", "w", 0, 0, 0, [batch("A"), batch("B")])
        assert home.client(*reversed(urls)).commit("orders", "w", 0, [staged.stage]).events == 2

    def test_an_append_goes_on_where_the_first_address_is_away(self, home: Home) -> None:
        assert home.client(refusing(), *home.urls).append("orders", [batch("A")])[0].first == 101
        assert home.primary.appends == 1

    def test_what_was_told_already_is_not_sent_again(self, home: Home) -> None:
        """The primary steps down between two batches: the first one is in, and only the caller knows its ids."""
        client = home.client(retries=1)

        class StepsDown(Member):
            def append(self, command: Any, batch: pa.RecordBatch) -> Any:
                appended = super().append(command, batch)
                self.is_primary = False
                return appended

        with serving(StepsDown(home.store, is_primary=True)) as server:
            client = home.client(url_of(server), home.urls[1])
            with pytest.raises(NotPrimary):
                client.append("orders", [batch("A"), batch("B")])
            assert home.store.open("orders").head() == 101
            assert client.append("orders", [batch("B")])[0].first == 102 and client.url == home.urls[1]

    def test_batches_that_cannot_be_gone_through_again_are_sent_once(self, home: Home) -> None:
        """To the primary, which is looked for before."""
        assert home.client(refusing(), *home.urls).append("orders", iter([batch("A")]))[0].first == 101
        assert home.client().stage("orders", "w", 0, 0, 0, iter([batch("B")])).rows == 1
        assert (home.primary.appends, home.replica.stages, home.primary.stages) == (1, 0, 1)

    def test_a_condition_holds_for_the_log_that_gave_its_number_alone(self, home: Home) -> None:
        member, stranger = home.stranger()
        client = home.client(home.urls[1], stranger, retries=1)
        condition = AppendCondition(Query.all(), after=client.head("orders").head)
        home.primary.problem = StorageUnavailable(reason="it stops")
        for _ in range(2):
            with pytest.raises(StorageUnavailable):
                client.append("orders", [batch("A")], condition=condition)
        assert member.appends == 0
        home.primary.problem = None
        assert client.append("orders", [batch("A")], condition=condition)[0].first == 101

    def test_a_log_that_was_made_anew_is_written_to_where_no_position_is_meant(self, home: Home) -> None:
        client = home.client()
        client.expect("orders", "another", 500)
        with pytest.raises(PositionOfOtherIncarnation):
            client.append("orders", [batch("A")], condition=AppendCondition(Query.all(), after=500))
        assert client.append("orders", [batch("A")])[0].first == 101

    def test_who_may_only_append_is_not_asked_to_read(self, home: Home) -> None:
        class Writers(Member):
            def authorize(self, user: Any, right: Right, log: str) -> None:
                if right is Right.READ:
                    raise Forbidden("ann", right, log)

        with serving(Writers(home.store)) as replica, serving(Writers(home.store, is_primary=True)) as primary:
            client = home.client(url_of(replica), url_of(primary))
            assert client.append("orders", [batch("A")])[0].first == 101
            assert client.append("orders", [batch("B")])[0].first == 102

    def test_each_address_is_looked_at_once(self, home: Home) -> None:
        client = home.client(*reversed(home.urls))
        heads = []
        place = home.primary.place
        home.primary.place = lambda log: heads.append(log) or place(log)  # type: ignore[method-assign]
        client.append("orders", [batch("A")])
        once = len(heads)
        client.append("orders", [batch("A")])
        assert len(heads) == 2 * once - 1
        assert client.head("orders").head == 102

    def test_what_was_appended_is_found_at_every_address(self, home: Home) -> None:
        client = home.client()
        client.append("orders", [batch("A")])
        home.replica.head = 100
        home.primary.problem = StorageUnavailable(reason="it stops")
        with pytest.raises(NotHereYet):
            client.head("orders")
        home.replica.head = None
        assert client.head("orders").head == 101


class TestPatience:
    @pytest.mark.parametrize(
        "replicas_say", [ServerUnreachable("grpc://b", "refused"), NotPrimary("orders"), LogNotFound("orders")]
    )
    @pytest.mark.parametrize("replicas", [1, 2, 4])
    def test_the_next_primary_is_waited_for(
        self, monkeypatch: pytest.MonkeyPatch, replicas_say: EventLogError, replicas: int
    ) -> None:
        """By default for longer than a lease lasts, with pauses as short as chance may have them."""
        now = [1000.0]
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        monkeypatch.setattr(random, "uniform", lambda low, high: low)
        connections = [FlightConnection(BulkAddress(f"grpc://a:{port}")) for port in range(1, replicas + 2)]
        tries, asked = Tries(Endpoints(connections), RETRIES, may_lag=True), 0
        tries._attempts.sleep = lambda pause_s: now.append(now.pop() + pause_s)
        with pytest.raises(NotPrimary if isinstance(replicas_say, NotPrimary) else ServerUnreachable):
            while True:
                asked += 1
                is_primary = tries.begin() is connections[0]
                tries.failed(ServerUnreachable("grpc://a:1", "refused") if is_primary else replicas_say)
        assert 1000 + 6.5 < now[0] < 1000 + 60
        assert asked <= (RETRIES + 1) * len(connections)


class TestAddress:
    def test_it_is_one_value_of_several(self) -> None:
        address = BulkAddress("grpc://a:1, grpc+tls://b", user="ann", password="secret")
        assert [each.location for each in address.each] == ["grpc://a:1", "grpc+tls://b:8815"]
        assert {each.user for each in address.each} == {"ann"}
        assert BulkAddress("grpc://a:1").each == (BulkAddress("grpc://a:1"),)

    @pytest.mark.parametrize(
        ("url", "problem"),
        [
            ("grpc://a:1,grpc://a:1", "'grpc://a:1' is given twice"),
            ("grpc://a:1,http://b:2", r"grpc://HOST\[:PORT\] or grpc\+tls://HOST\[:PORT\], got 'http://b:2'"),
            ("grpc://a:1,b:2", "grpc://a:1,b:2"),
            ("grpc://a:1,", "grpc://a:1,"),
            (",".join(f"grpc://a:{port}" for port in range(1, 66)), "expected at most 64 URLs, got 65"),
        ],
    )
    def test_what_is_wrong_about_it_is_said(self, url: str, problem: str) -> None:
        with pytest.raises(InvalidInput, match=problem) as caught:
            BulkAddress(url)
        assert caught.value.where == "url"
