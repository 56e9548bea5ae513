"""Consumer groups on a server: who owns which partition, and where the next owner goes on (event streams, 4.5)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.amqp.client import Client, Receiver
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.performatives import Accepted, Released
from headwater.amqp.protocol.types import Int, Symbol, ULong
from headwater.amqp.settings import AmqpSettings
from headwater.amqp.streams.consumer_attach import GroupMember
from headwater.core.errors import NotPrimary
from headwater.core.local import LocalLog
from headwater.storage import Engine

from ..waiting import eventually
from .asking import EARLIEST, bound, drained, message, numbers, put
from .served import Served

EPOCH = "event-streams-epoch"


@pytest.fixture
def log(served: Served) -> LocalLog:
    return served.log("split", partitions=3)


@pytest.fixture
def other(served: Served) -> Iterator[Client]:
    with served.client() as connected:
        yield connected


class FailingState:
    """A state store whose disk takes no epoch while `fails`."""

    def __init__(self, state: Any, error: Exception) -> None:
        self._state, self._error, self.fails = state, error, False

    def put(self, kind: str, key: str, *arguments: Any, **options: Any) -> int:
        if self.fails and key.startswith("amqp-epoch"):
            raise self._error
        return int(self._state.put(kind, key, *arguments, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)


@pytest.mark.parametrize("error", [OSError("no space left on device"), NotPrimary("$state")], ids=["OSError", "lost"])
def test_nobody_owns_a_partition_under_an_epoch_that_is_not_stored(
    served: Served, monkeypatch: Any, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    served.log("split", partitions=3)
    state = FailingState(served.store.state, error)
    monkeypatch.setattr(served.store, "_state", state)
    with served.client() as client:
        state.fails = True
        assert refusal(client, 1, ULong(5)) == conditions.INTERNAL_ERROR
        state.fails = False
        again = join(client, 1, ULong(6))
        assert partition_of(again) == "1"
    told = [record for record in caplog.records if record.message == "positions were not stored"]
    is_fault = isinstance(error, OSError)
    assert {bool(record.exc_info) for record in told} == {is_fault}, "a traceback says nothing of a lost role"


def join(client: Client, partition: int | None = None, epoch: Any = None, group: str = "G", **options: Any) -> Receiver:
    return client.receiver("split", properties=bound(partition, group, epoch), **{"credit": 0, **options})


def partition_of(receiver: Receiver) -> str:
    assert receiver.link.remote is not None and receiver.link.remote.properties is not None
    return receiver.link.remote.properties["event-streams-partition"]


def refusal(client: Client, *arguments: Any, **options: Any) -> str:
    with pytest.raises(AmqpError) as refused:
        join(client, *arguments, **options)
    return refused.value.condition


def ending(receiver: Receiver) -> str:
    with pytest.raises(AmqpError) as ended:
        receiver.take(1)
    return ended.value.condition


# Assigned by the node


def test_group_link_is_bound_by_the_node(log: LocalLog, client: Client) -> None:
    receivers = [join(client) for _ in range(3)]
    for number, receiver in enumerate(receivers):
        found = receiver.link.remote.properties
        assert found == bound(number, "G", 0)
        assert (type(found["event-streams-partition"]), type(found[EPOCH])) == (Symbol, ULong)
    assert partition_of(join(client, group="H")) == "0"


def test_two_links_of_a_group_never_read_one_partition(log: LocalLog, client: Client, other: Client) -> None:
    receivers = [join(client), join(other), join(client)]
    for number in range(30):
        put(log, number, partition=number % 3)
    got = [numbers(drained(each._client, each)) for each in receivers]
    assert got == [list(range(partition, 30, 3)) for partition in range(3)]


def test_attach_without_a_free_partition_waits_and_is_then_answered(log: LocalLog, client: Client) -> None:
    receivers = [join(client) for _ in range(3)]
    waiting = join(client, waits=False)
    assert partition_of(join(client, group="another")) == "0"
    assert waiting.link.remote is None
    receivers[1].close()
    waiting.attached()
    assert partition_of(waiting) == "1"


def test_an_attach_that_waits_may_be_given_up(log: LocalLog, client: Client) -> None:
    receivers = [join(client) for _ in range(3)]
    given_up, waiting = join(client, waits=False), join(client, waits=False)
    given_up.close()
    receivers[2].close()
    waiting.attached()
    assert given_up.error is None and partition_of(waiting) == "2"


def test_an_attach_that_waits_too_long_is_refused() -> None:
    with Served(settings=AmqpSettings(group_pending_ms=50)) as served, served.client() as client:
        served.log("split", partitions=3)
        receivers = [join(client) for _ in range(3)]
        assert refusal(client) == conditions.LINK_DETACH_FORCED
        assert all(receiver.error is None for receiver in receivers)


@pytest.mark.parametrize("pending_max", [0, 2])
def test_only_so_many_attaches_wait(pending_max: int) -> None:
    with Served(settings=AmqpSettings(group_pending_max=pending_max)) as served, served.client() as client:
        served.log("split", partitions=3)
        for _ in range(3):
            join(client)
        waiting = [join(client, waits=False) for _ in range(pending_max)]
        assert refusal(client) == conditions.LINK_DETACH_FORCED
        assert all(each.error is None and each.link.remote is None for each in waiting)


def test_a_link_that_is_gone_before_its_log_is_open_owns_nothing(
    served: Served, log: LocalLog, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_open = threading.Event(), threading.Event()
    open = served.store.open

    def open_slowly(name: str) -> LocalLog:
        begun.set()
        assert may_open.wait(10)
        return open(name)

    monkeypatch.setattr(served.store, "open", open_slowly)
    quick = join(client, waits=False)
    assert begun.wait(10)
    quick.close()
    may_open.set()
    assert [partition_of(join(client)) for _ in range(3)] == ["0", "1", "2"]


def test_a_new_container_gets_its_share(log: LocalLog, client: Client, other: Client) -> None:
    mine = [join(client) for _ in range(3)]
    theirs = join(other, waits=False)
    client.wait(lambda: any(receiver.error for receiver in mine))
    theirs.attached()
    (moved,) = [receiver for receiver in mine if receiver.error]
    assert moved.error.condition == conditions.LINK_DETACH_FORCED
    assert partition_of(theirs) == partition_of(moved)


def test_rebalanced_link_may_settle_before_it_is_closed(log: LocalLog, client: Client, other: Client) -> None:
    mine = [join(client) for _ in range(3)]
    for partition in range(3):
        put(log, *range(10 * partition, 10 * partition + 4), partition=partition)
    deliveries = {receiver: drained(client, receiver, 2) for receiver in mine}
    theirs = join(other, waits=False)
    assert partition_of(join(other, group="another")) == "0"
    assert theirs.link.remote is None and all(receiver.error is None for receiver in mine)
    for each in deliveries.values():
        for delivery in each:
            delivery.settle()
    client.wait(lambda: any(receiver.error for receiver in mine))
    theirs.attached()
    begin = 10 * int(partition_of(theirs))
    assert numbers(drained(other, theirs)) == [begin + 2, begin + 3]


def test_a_rebalanced_link_that_does_not_settle_is_closed_and_its_events_go_to_the_next() -> None:
    with Served(settings=AmqpSettings(group_drain_ms=100)) as served:
        log = served.log("split", partitions=2)
        with served.client() as client, served.client() as other:
            mine = [join(client), join(client)]
            put(log, 1, 2, 3, partition=0)
            put(log, 1, 2, 3, partition=1)
            for receiver in mine:
                drained(client, receiver, 2)[0].settle()
            client.flush()
            theirs = join(other, waits=False)
            client.wait(lambda: any(receiver.error for receiver in mine))
            theirs.attached()
            assert numbers(drained(other, theirs)) == [2, 3]


# Where the next owner goes on


def test_a_new_group_begins_now(log: LocalLog, client: Client) -> None:
    put(log, 1, partition=0)
    receiver = join(client)
    put(log, 2, partition=0)
    assert numbers(drained(client, receiver)) == [2]


def test_a_group_begins_where_its_filter_says(log: LocalLog, client: Client) -> None:
    put(log, 1, 2, 3, partition=0)
    assert numbers(drained(client, join(client, filter=EARLIEST))) == [1, 2, 3]


def test_a_filter_does_not_move_a_group_that_has_a_position(log: LocalLog, client: Client) -> None:
    put(log, *range(1, 7), partition=0)
    first = join(client, 0, filter=EARLIEST)
    for delivery in drained(client, first, 4):
        delivery.settle()
    first.close()
    again = join(client, 0, filter=EARLIEST)
    assert numbers(drained(client, again)) == [5, 6]


RESET = Symbol("headwater:reset-position")


def test_a_group_is_reset_where_its_member_asks_for_that(log: LocalLog, client: Client, other: Client) -> None:
    for partition in (0, 1):
        put(log, 1, 2, 3, partition=partition)
        member = join(client, partition, filter=EARLIEST, snd_settle_mode=1)
        drained(client, member)
        member.close()
    reset = other.receiver("split", credit=0, filter=EARLIEST, properties={**bound(0, "G"), RESET: True})
    assert numbers(drained(other, reset)) == [1, 2, 3]
    assert numbers(drained(other, join(other, 1, filter=EARLIEST))) == [], "the other partition was not reset"
    reset.close()
    to_now = other.receiver("split", credit=0, properties={**bound(0, "G"), RESET: True})
    assert numbers(drained(other, to_now)) == []
    to_now.close()
    unset = other.receiver("split", credit=0, filter=EARLIEST, properties={**bound(0, "G"), RESET: False})
    assert numbers(drained(other, unset)) == []


@pytest.mark.parametrize(("group", "value"), [(None, True), ("G", "yes"), ("G", 1), (None, None)])
def test_a_reset_is_true_or_false_of_a_group(log: LocalLog, client: Client, group: str | None, value: Any) -> None:
    with pytest.raises(AmqpError, match="reset-position") as refused:
        client.receiver("split", credit=0, properties={**bound(0, group), RESET: "" if value is None else value})
    assert refused.value.condition == conditions.INVALID_FIELD


def test_a_new_group_begins_where_the_log_or_its_address_says(served: Served) -> None:
    log = served.log("history", default_start="earliest")
    put(log, 1, 2)
    with served.client() as client:
        group, other = bound(group="G"), bound(group="H")
        assert numbers(drained(client, client.receiver("history", credit=0, properties=group))) == [1, 2]
        assert numbers(drained(client, client.receiver("history/$latest", credit=0, properties=other))) == []


def test_connections_are_counted_and_not_container_ids(served: Served, log: LocalLog) -> None:
    """Two processes of one container id share the partitions as two of different ones do."""
    with served.client(container_id="app") as first, served.client(container_id="app") as second:
        mine = [join(first) for _ in range(3)]
        theirs = join(second, waits=False, name="of the second")
        first.wait(lambda: any(receiver.error for receiver in mine))
        theirs.attached()
        assert [receiver.error.condition for receiver in mine if receiver.error] == [conditions.LINK_DETACH_FORCED]


def test_a_receiver_without_an_epoch_leaves_the_fence_standing(log: LocalLog, client: Client) -> None:
    with Client(f"amqp://127.0.0.1:{client._socket.getpeername()[1]}", timeout_s=10.0) as lost:
        join(lost, 1, ULong(7))
        lost.drop()
    eventually(lambda: not refused(client, 1))
    join(client, 1).close()
    assert refusal(client, 1, ULong(6)) == conditions.RESOURCE_LOCKED


def refused(client: Client, partition: int) -> bool:
    """Whether the partition still has an owner; if not, it is taken and given back."""
    try:
        join(client, partition).close()
    except AmqpError:
        return True
    return False


def test_next_owner_goes_on_where_the_last_one_settled(log: LocalLog, client: Client, other: Client) -> None:
    first = join(client, 0)
    put(log, *range(1, 10), partition=0)
    deliveries = drained(client, first, 5)
    for place in (0, 1, 3):
        deliveries[place].settle()
    deliveries[2].settle(Released())
    first.close()
    assert numbers(drained(other, join(other, 0))) == [3, 5, 6, 7, 8, 9]


def test_an_owner_whose_connection_is_lost_is_followed_by_one_that_waits(
    log: LocalLog, client: Client, other: Client
) -> None:
    mine = [join(other) for _ in range(2)]
    lost = join(client)
    waiting = join(other, waits=False)
    put(log, *range(1, 6), partition=2)
    for delivery in drained(client, lost, 3)[:2]:
        delivery.settle()
    drained(client, lost, 1)
    client.drop()
    waiting.attached()
    assert partition_of(waiting) == "2" and len(mine) == 2
    assert numbers(drained(other, waiting)) == [3, 4, 5]


# Epochs (4.5.2)


def test_second_link_to_a_partition_of_a_group_is_refused(log: LocalLog, client: Client, other: Client) -> None:
    owner = join(client, 1)
    assert refusal(other, 1) == conditions.RESOURCE_LOCKED
    assert refusal(other, 1, 0) == conditions.RESOURCE_LOCKED
    assert owner.error is None
    assert partition_of(join(other, 1, group="another")) == "1"


def test_greater_epoch_steals_the_link(log: LocalLog, client: Client, other: Client) -> None:
    old = join(client, 1)
    assert old.link.remote.properties[EPOCH] == 0
    new = join(other, 1, ULong(5))
    assert new.link.remote.properties == bound(1, "G", 5)
    assert ending(old) == conditions.LINK_STOLEN
    put(log, 1, partition=1)
    assert numbers(drained(other, new)) == [1]


@pytest.mark.parametrize("epoch", [None, ULong(0), ULong(4), ULong(5), Int(5)])
def test_an_epoch_that_is_not_greater_is_refused(
    log: LocalLog, client: Client, other: Client, epoch: int | None
) -> None:
    owner = join(client, 1, ULong(5))
    assert refusal(other, 1, epoch) == conditions.RESOURCE_LOCKED
    put(log, 1, partition=1)
    assert owner.error is None and numbers(drained(client, owner)) == [1]


def test_an_epoch_outlives_a_lost_owner(log: LocalLog, client: Client, other: Client) -> None:
    waiting = [join(client, 1, ULong(5)), join(other, 0), join(other, 2), join(other, waits=False)][-1]
    client.drop()
    waiting.attached()  # so the owner's end was noticed
    assert waiting.link.remote.properties == bound(1, "G", 5)
    waiting.close(is_closed=False)
    assert refusal(other, 1, ULong(4)) == conditions.RESOURCE_LOCKED
    assert join(other, 1, ULong(5)).link.remote.properties[EPOCH] == 5


def test_an_epoch_is_zero_again_when_its_receiver_closes(log: LocalLog, client: Client, other: Client) -> None:
    join(client, 1, ULong(5)).close()
    assert join(other, 1, ULong(1)).link.remote.properties[EPOCH] == 1


def test_epochs_and_positions_outlive_the_server(tmp_path: Path) -> None:
    def serve(epoch: int, expected: list[int]) -> None:
        with Engine(tmp_path) as store, Served(store=store) as served:
            log = served.log("split", partitions=3)
            with served.client() as client:
                receiver = join(client, 1, ULong(epoch))
                assert receiver.link.remote.properties[EPOCH] == epoch
                if not log.head():
                    put(log, *range(1, 7), partition=1)
                deliveries = drained(client, receiver, 2)
                assert numbers(deliveries) == expected
                for delivery in deliveries:
                    delivery.settle()
                drained(client, client.receiver("split", credit=0))
                client.drop()

    serve(5, [1, 2])
    with Engine(tmp_path) as store, Served(store=store) as served, served.client() as client:
        assert refusal(client, 1, ULong(4)) == conditions.RESOURCE_LOCKED
    serve(5, [3, 4])
    serve(6, [5, 6])


@pytest.mark.parametrize(
    "properties",
    [
        {Symbol("event-streams-consumer-group"): ""},
        {Symbol("event-streams-consumer-group"): 5},
        {Symbol("event-streams-epoch"): ULong(5)},
        {Symbol("event-streams-consumer-group"): "G", Symbol("event-streams-epoch"): "5"},
        {Symbol("event-streams-consumer-group"): "G", Symbol("event-streams-epoch"): -1},
    ],
)
def test_unfit_properties_are_refused(log: LocalLog, client: Client, properties: dict[Symbol, Any]) -> None:
    with pytest.raises(AmqpError) as refused:
        client.receiver("split", properties=properties)
    assert refused.value.condition == conditions.INVALID_FIELD


def test_a_group_needs_a_partition_that_exists(log: LocalLog, client: Client) -> None:
    assert refusal(client, 3) == conditions.NOT_FOUND


# Twelve members, ten partitions, three of them killed


PARTITIONS, MEMBERS, KILLED, EVENTS = 10, 12, 3, 4000


class Member(threading.Thread):
    """A consumer that always asks for one partition more than it has, and accepts what it gets."""

    def __init__(self, served: Served, number: int) -> None:
        super().__init__(name=f"member-{number}", daemon=True)
        self._served = served
        self._receivers: list[Receiver] = []
        self.is_killed = self.is_stopped = False
        self.accepted: list[int] = []
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            client = self._served.client(container_id=self.name)
            self._serve(client)
            client.drop() if self.is_killed else client.close()
        except BaseException as problem:
            self.problem = problem

    def _serve(self, client: Client) -> None:
        wanted = join(client, waits=False)
        while not self.is_stopped and not self.is_killed:
            client.pump(0.02)
            if wanted.link.remote is not None:
                self._receivers.append(wanted)
                wanted = join(client, waits=False)
            for receiver in tuple(self._receivers):
                self._accept(receiver)

    def _accept(self, receiver: Receiver) -> None:
        for delivery in receiver.take(1000, 0):
            self.accepted += numbers([delivery])
            delivery.settle()
        if receiver.error is not None:
            self._receivers.remove(receiver)
        elif receiver.link.credit < 25:
            receiver.link.grant(50)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Partitions that were given to a link while another one of the group was attached to them; none ever should."""
    found: list[str] = []
    assigned = GroupMember.assigned

    def look(member: GroupMember, partition: int, epoch: int) -> None:
        for consumer in member._attaching.node.consumers:
            if consumer.partition == partition and consumer._link.is_attached:
                found.append(f"{partition} was given to {member._attaching.transport.remembered_as} too")
        assigned(member, partition, epoch)

    monkeypatch.setattr(GroupMember, "assigned", look)
    return found


def load(served: Served, count: int, sent: list[int]) -> None:
    with served.client() as client:
        sender = client.sender("split")
        for begin in range(0, count, 100):
            batch = range(begin, begin + 100)
            targets = [{Symbol("event-streams-target-partition"): Symbol(number % PARTITIONS)} for number in batch]
            outcomes = sender.send_all([
                message(b"%d" % number, delivery_annotations=target)
                for number, target in zip(batch, targets, strict=True)
            ])  # fmt: skip
            assert outcomes == [Accepted()] * 100
            sent += batch


def test_members_that_are_killed_under_load_cost_no_event_and_give_no_partition_two_owners(
    served: Served, seconds: list[str]
) -> None:
    served.log("split", partitions=PARTITIONS)
    members = [Member(served, number) for number in range(MEMBERS)]
    for member in members:
        member.start()

    def owners() -> list[str | None]:
        node = served.container.nodes._nodes.get("split")
        return (
            [owner and owner._attaching.transport.remembered_as for owner in node.groups.owners("G")]
            if node
            else [None]
        )

    eventually(lambda: None not in owners() and len(set(owners())) == PARTITIONS)
    sent: list[int] = []
    loading = threading.Thread(target=load, args=(served, EVENTS, sent), daemon=True)
    loading.start()
    eventually(lambda: len(sent) > EVENTS // 4)
    killed = set(owners()[:KILLED])
    for member in members:
        member.is_killed = member.name in killed
    eventually(
        lambda: None not in owners() and killed.isdisjoint(owners()) and len(set(owners())) == MEMBERS - KILLED,
        within_s=5,
    )
    loading.join(60)
    assert len(sent) == EVENTS
    eventually(lambda: {number for member in members for number in member.accepted} == set(range(EVENTS)))
    for member in members:
        member.is_stopped = True
    for member in members:
        member.join(20)
    assert [member.problem for member in members] == [None] * MEMBERS
    assert not seconds and len(killed) == KILLED


def test_links_of_a_deleted_log_are_detached_those_that_wait_too(served: Served, log: LocalLog, client: Client) -> None:
    links = [join(client), join(client), join(client), join(client, waits=False)]
    sender = client.sender("split")
    served.store.delete("split")
    client.wait(lambda: sender.error is not None and all(link.error is not None for link in links))
    assert {link.error.condition for link in (sender, *links)} == {conditions.RESOURCE_DELETED}
    served.log("split", partitions=3)
    assert partition_of(join(client)) == "0"


def test_a_link_that_is_stolen_before_its_log_is_open_owns_nothing(
    served: Served, log: LocalLog, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_open = threading.Event(), threading.Event()
    open = served.store.open

    def open_slowly(name: str) -> LocalLog:
        begun.set()
        assert may_open.wait(10)
        return open(name)

    monkeypatch.setattr(served.store, "open", open_slowly)
    first = join(client, waits=False, name="same")
    assert begun.wait(10)
    second = client.receiver("nowhere", name="same", waits=False)
    (transport,) = served.container.connections
    eventually(lambda: len(list(transport.engine.sessions[0].links)) == 2)
    may_open.set()
    eventually(lambda: "split" in served.container.nodes._nodes)  # while the client has not answered that it was stolen
    client.wait(lambda: first.error is not None and second.error is not None)
    assert (first.error.condition, second.error.condition) == (conditions.LINK_STOLEN, conditions.NOT_FOUND)
    assert [partition_of(join(client)) for _ in range(3)] == ["0", "1", "2"]


def test_who_slept_through_its_turn_gives_no_partition_away(served: Served, monkeypatch: Any) -> None:
    turn = [True]
    monkeypatch.setattr(served.store, "may_act", lambda: turn[0])
    served.log("split", partitions=3)
    with served.client() as client:
        assert partition_of(join(client)) == "0"
        turn[0] = False
        assert refusal(client) == conditions.INTERNAL_ERROR
        assert refusal(client, 2, ULong(5)) == conditions.INTERNAL_ERROR
        turn[0] = True
        assert partition_of(join(client)) == "1"
