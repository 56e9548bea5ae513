"""Producers: what becomes of their messages, and what they are told."""

from __future__ import annotations

import pytest

from headwater.amqp.client import Client
from headwater.amqp.messages.plain import PlainEvents, read_plain
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.message import DATA, VALUE, Message, Properties, encode_message
from headwater.amqp.protocol.performatives import Accepted, Coordinator, Rejected, Source, Target
from headwater.amqp.protocol.types import Described, Symbol
from headwater.amqp.settings import AmqpSettings
from headwater.core.errors import InvalidPosition
from headwater.core.event import Encoding
from headwater.core.log import AppendResult
from headwater.core.loop.batcher import Joint, Outcome

from ..waiting import eventually
from .served import Served

EARLIEST = {
    "from the beginning": Described(
        Symbol("amqp:event-streams-delivery-annotations-filter"), {Symbol("event-streams-offset"): Symbol("@earliest")}
    )
}


def message(body: bytes = b"{}", subject: str | None = "OrderPlaced", **fields: object) -> Message:
    return Message([body], DATA, properties=Properties(subject=subject), **fields)  # type: ignore[arg-type]


def test_an_accepted_message_is_an_event(served: Served, client: Client) -> None:
    assert client.sender("orders").send(message(b"payload")) == Accepted()
    (event,) = served.log("orders").read()
    assert (event.type, event.data, event.encoding) == ("OrderPlaced", b"payload", Encoding.DATA)


@pytest.mark.parametrize("address", ["orders", "/orders", "amqp://elsewhere:1234/orders", "AMQPS://h/orders"])
def test_an_address_may_be_a_whole_url(served: Served, client: Client, address: str) -> None:
    assert client.sender(address).send(message()) == Accepted()
    assert served.log("orders").head() == 1


def test_a_burst_is_stored_in_its_order(served: Served, client: Client) -> None:
    states = client.sender("orders").send_all([message(b"%d" % number) for number in range(2500)])
    assert states == [Accepted()] * 2500
    assert [int(event.data) for event in served.log("orders").read()] == list(range(2500))


def test_settled_messages_are_stored_too(served: Served, client: Client) -> None:
    sender = client.sender("orders")
    sender.send_all([message(b"%d" % number) for number in range(100)], is_settled=True)
    assert sender.send(message(b"last")) == Accepted()
    assert served.log("orders").head() == 101


def test_plain_messages_keep_their_order_among_others(served: Served, client: Client) -> None:
    mixed = [
        Message("value", VALUE) if number % 7 == 3 else message(b"%d" % number, f"Type{number % 50 // 10}")
        for number in range(600)
    ]
    states = client.sender("orders").send_all(mixed)
    assert states == [Accepted()] * 600
    events = list(served.log("orders").read())
    assert [event.data for event in events if not event.encoding] == [
        each.body[0] for each in mixed if each.body_kind == DATA
    ]
    assert [number for number, event in enumerate(events) if event.encoding] == list(range(3, 600, 7))


class Claim:
    """A link's part of what is appended together."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def ended(self, outcome: Outcome) -> None:
        """See Share."""
        self.outcomes.append(outcome)

    def apart(self) -> list[Joint]:
        """See Share: its two events."""
        return [Alone(self), Alone(self)]


class Alone(PlainEvents):
    """One event, which no log takes."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(9)
        self.claim(claim)

    def apart(self) -> None:  # type: ignore[override]
        """See Joint."""


def gathered(served: Served, log: str, links: int, partition: int | None = None) -> list[Claim]:
    """Two plain events of each link, in one turn of the loop."""
    claims = [Claim() for _ in range(links)]

    async def gather() -> None:
        node = await served.container.nodes.node_of(log)
        for number, claim in enumerate(claims):
            messages = [encode_message(message(b"%d" % number))] * 2
            events = node.appends.open(PlainEvents, partition)
            assert read_plain(messages, None, node.log.settings, events)
            events.claim(claim)
            node.appends.grown()

    served.run(gather)
    return claims


def are_stored(claims: list[Claim]) -> bool:
    return all([isinstance(each, AppendResult) for each in claim.outcomes] == [True] for claim in claims)


def test_what_comes_from_many_links_in_one_turn_is_one_append(served: Served) -> None:
    log = served.log("orders")
    claims = gathered(served, "orders", 100)
    eventually(lambda: are_stored(claims))
    assert log.statistics.appends == 1
    assert [int(event.data) for event in log.read()] == [number for number in range(100) for _ in range(2)]


def test_without_a_partition_each_link_has_an_append_of_its_own(served: Served) -> None:
    log = served.log("spread", partitions=4)
    claims = gathered(served, "spread", 8)
    eventually(lambda: are_stored(claims))
    assert log.statistics.appends == 8
    assert {event.partition for event in log.read()} == {0, 1, 2, 3}


def test_all_links_are_told_of_what_the_log_refuses(served: Served) -> None:
    claims = gathered(served, "orders", 3, partition=9)
    eventually(lambda: all([type(each) for each in claim.outcomes] == [InvalidPosition] * 2 for claim in claims))


def test_a_large_message_comes_in_many_frames(served: Served, client: Client) -> None:
    body = bytes(range(256)) * 3000
    assert client.sender("orders").send(message(body)) == Accepted()
    (event,) = served.log("orders").read()
    assert event.data == body


def test_a_message_over_the_limit_is_rejected_and_costs_no_other(served: Served, client: Client) -> None:
    served.log("small", event_bytes_max=2048)
    sender = client.sender("small")
    assert sender.link.remote is not None and sender.link.remote.max_message_size == 2048
    states = sender.send_all([message(b"a"), message(bytes(3000)), message(bytes(300_000)), message(b"b")])
    assert [type(state) for state in states] == [Accepted, Rejected, Rejected, Accepted]
    assert {states[1].error.condition, states[2].error.condition} == {conditions.LINK_MESSAGE_SIZE_EXCEEDED}
    assert [event.data for event in served.log("small").read()] == [b"a", b"b"]


def test_a_message_that_cannot_be_read_is_rejected_with_the_reason(served: Served, client: Client) -> None:
    sender = client.sender("orders")
    states = sender.send_all([message(b"a"), b"\x00\x53\x99\x45", b"", b"\xff", message(b"b")])
    assert [type(state) for state in states] == [Accepted, Rejected, Rejected, Rejected, Accepted]
    assert {state.error.condition for state in states[1:4]} == {conditions.DECODE_ERROR}
    assert served.log("orders").head() == 2


def test_a_known_id_is_rejected_and_costs_no_other(served: Served, client: Client) -> None:
    def event(id: str, data: bytes) -> Message:
        names = {"cloudEvents:specversion": "1.0", "cloudEvents:type": "T", "cloudEvents:source": "/s"}
        return Message([data], DATA, application_properties={**names, "cloudEvents:id": id})

    sender = client.sender("orders")
    states = sender.send_all([event("1", b"a"), event("1", b"other"), event("1", b"a"), event("2", b"b")])
    assert [type(state) for state in states] == [Accepted, Rejected, Accepted, Accepted]
    assert states[1].error.condition == conditions.PRECONDITION_FAILED
    assert [event.data for event in served.log("orders").read()] == [b"a", b"b"]


def test_only_the_id_of_a_cloud_event_makes_a_repeated_message_known(served: Served, client: Client) -> None:
    of_message = Message([b"{}"], DATA, properties=Properties(message_id="m-1", subject="T"))
    about = {
        "cloudEvents:specversion": "1.0",
        "cloudEvents:id": "1",
        "cloudEvents:source": "/s",
        "cloudEvents:type": "T",
    }
    of_event = Message([b"{}"], DATA, application_properties=about)
    assert client.sender("orders").send_all([of_message, of_message, of_event, of_event]) == [Accepted()] * 4
    assert [event.id == "1" for event in served.log("orders").read()] == [False, False, True]


def test_a_link_bound_to_a_partition_writes_there(served: Served, client: Client) -> None:
    log = served.log("split", partitions=4)
    sender = client.sender("split", properties={Symbol("event-streams-partition"): Symbol("2")})
    assert sender.link.remote is not None
    assert sender.link.remote.properties == {"event-streams-partition": Symbol("2")}
    sender.send_all([message()] * 5)
    assert [event.partition for event in log.read()] == [2] * 5


def test_a_target_partition_is_kept_and_stripped(served: Served, client: Client) -> None:
    log = served.log("split", partitions=4)
    sender = client.sender("split")
    targets = [{Symbol("event-streams-target-partition"): Symbol(str(number))} for number in (3, 0, 3)]
    sender.send_all([message(delivery_annotations=target) for target in targets])
    assert [event.partition for event in log.read()] == [3, 0, 3]
    (delivery, *_) = client.receiver("split", filter=EARLIEST).take(1)
    assert "event-streams-target-partition" not in delivery.message.delivery_annotations


def test_the_wrong_target_partition_is_rejected(served: Served, client: Client) -> None:
    log = served.log("split", partitions=4)
    bound = client.sender("split", properties={Symbol("event-streams-partition"): Symbol("2")})
    target = {Symbol("event-streams-target-partition"): Symbol("1")}
    same = {Symbol("event-streams-target-partition"): Symbol("2")}
    states = bound.send_all([message(delivery_annotations=target), message(delivery_annotations=same)])
    assert states[0].error.condition == conditions.NOT_ALLOWED and states[1] == Accepted()
    nowhere = {Symbol("event-streams-target-partition"): Symbol("4")}
    state = client.sender("split").send(message(delivery_annotations=nowhere))
    assert state.error.condition == conditions.NOT_FOUND
    assert log.head() == 1


def test_one_group_key_goes_to_one_partition(served: Served, client: Client) -> None:
    log = served.log("split", partitions=4)
    sender = client.sender("split")
    keys = [f"key {number % 8}" for number in range(64)]
    annotations = [{Symbol("event-streams-group-key"): key} for key in keys]
    sender.send_all([message(message_annotations=each) for each in annotations])
    partitions: dict[str, set[int]] = {}
    for event in log.read():
        partitions.setdefault(event.group_key, set()).add(event.partition)
    assert len(partitions) == 8 and all(len(found) == 1 for found in partitions.values())
    assert len(set.union(*partitions.values())) > 1


def test_target_partition_goes_before_the_group_key(served: Served, client: Client) -> None:
    log = served.log("split", partitions=4)
    targets = [{Symbol("event-streams-target-partition"): Symbol(str(number))} for number in range(4)]
    key = {Symbol("event-streams-group-key"): "one key"}
    messages = [message(delivery_annotations=target, message_annotations=key) for target in targets]
    assert client.sender("split").send_all(messages) == [Accepted()] * 4
    assert [(event.partition, event.group_key) for event in log.read()] == [(n, "one key") for n in range(4)]


@pytest.mark.parametrize("partition", [Symbol("4"), Symbol("x"), Symbol("00"), Symbol("-1")])
def test_an_unknown_partition_is_attached_and_detached_with_the_error(served: Served, partition: Symbol) -> None:
    served.log("split", partitions=4)
    with served.client() as client, pytest.raises(AmqpError) as refused:
        client.sender("split", properties={Symbol("event-streams-partition"): partition})
    assert refused.value.condition == conditions.NOT_FOUND


def test_an_unknown_log_is_refused(client: Client) -> None:
    for address in ("nowhere", "not a name", "$nothing", "orders/else", ""):
        with pytest.raises(AmqpError) as refused:
            client.sender(address)
        assert refused.value.condition == conditions.NOT_FOUND


def test_information_cannot_be_written(client: Client) -> None:
    with pytest.raises(AmqpError) as refused:
        client.sender("orders/$info")
    assert refused.value.condition == conditions.NOT_ALLOWED


def test_without_target_address_each_message_names_its_log(served: Served, client: Client) -> None:
    served.log("other")
    sender = client.sender(None)
    messages = [Message([b"x"], DATA, properties=Properties(to=to)) for to in ("orders", "other", "nowhere", None)]
    states = sender.send_all(messages)
    assert [type(state) for state in states] == [Accepted, Accepted, Rejected, Rejected]
    assert [states[2].error.condition, states[3].error.condition] == [conditions.NOT_FOUND, conditions.INVALID_FIELD]
    assert served.log("orders").head() == served.log("other").head() == 1


def test_a_target_is_told_that_it_is_not_durable(client: Client) -> None:
    wanted = Target(address="orders", durable=2, expiry_policy="never", timeout=60, capabilities=(Symbol("queue"),))
    link = client.session.attach_sender("durable", source=Source(), target=wanted)
    client.wait(lambda: link.remote is not None)
    assert link.remote is not None
    assert link.remote.target == Target(address="orders", capabilities=(Symbol("queue"),))


def test_transactions_are_refused(served: Served) -> None:
    with served.client() as client:
        link = client.session.attach_sender("tx", target=Coordinator())
        client.wait(lambda: link.remote is not None and link.is_over)
        assert link.remote is not None and link.remote.target is None


def test_an_unknown_message_format_is_rejected(served: Served, client: Client) -> None:
    sender = client.sender("orders")
    from headwater.amqp.protocol.performatives import Transfer, encode_performative

    transfer = Transfer(handle=sender.link.handle, delivery_id=0, delivery_tag=b"1", message_format=0x80013700)
    session = client.session
    session.take_delivery_ids(sender.link, [1], False)
    sender.link.unsettled += 1
    client.engine.send_body(session.channel, bytes(encode_performative(transfer)), b"\x00\x53\x75\xa0\x01x")
    client.wait(lambda: 1 in sender.states)
    assert sender.states[1].error.condition == conditions.NOT_IMPLEMENTED
    assert served.log("orders").head() == 0


def test_in_mode_second_the_sender_settles_last(served: Served, client: Client) -> None:
    sender = client.sender("orders", rcv_settle_mode=1)
    assert sender.link.local is not None and sender.link.remote is not None
    assert sender.link.remote.rcv_settle_mode == 1
    assert sender.send_all([message(), message()]) == [Accepted(), Accepted()]


def test_a_recovered_link_is_told_what_was_accepted(served: Served) -> None:
    """The sender did not hear of the outcome before its connection was lost (2.6.13)."""
    with served.client(container_id="device") as first:
        sender = first.sender("orders", name="link", rcv_settle_mode=1)
        sender.link.send(b"\x00\x53\x75\xa0\x01x", 7, 7)
        first.flush()
        while served.log("orders").head() < 1:
            first.engine.data_to_send()
        first.drop()
    with served.client(container_id="device") as second:
        unsettled = {(7).to_bytes(8, "big"): None}
        again = second.sender("orders", name="link", rcv_settle_mode=1, unsettled=unsettled)
        assert again.link.remote is not None
        assert again.link.remote.unsettled == {(7).to_bytes(8, "big"): Accepted()}
    assert served.log("orders").head() == 1


def test_credit_is_withheld_while_outcomes_are_due() -> None:
    with Served(settings=AmqpSettings(credit=10)) as served:
        served.log("orders")
        with served.client() as client:
            sender = client.sender("orders")
            client.wait(lambda: sender.link.credit > 0)
            assert sender.link.credit == 10
            assert sender.send_all([message()] * 100) == [Accepted()] * 100


# Refused, and nobody is asked any more


FAULTS = {
    "too large": (bytes(3000), conditions.LINK_MESSAGE_SIZE_EXCEEDED),
    "unreadable": (b"\x00\x53\x99\x45", conditions.DECODE_ERROR),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_refused_settled_message_ends_its_link_and_is_named(served: Served, client: Client, fault: str) -> None:
    log = served.log("small", event_bytes_max=2048)
    payload, condition = FAULTS[fault]
    sender = client.sender("small")
    bad = message(payload) if fault == "too large" else payload
    sender.send_all([message(b"before"), bad, message(b"after")], is_settled=True)
    client.wait(lambda: sender.error is not None)
    assert sender.error is not None and sender.error.info is not None
    assert sender.error.condition == condition
    assert sender.error.info["delivery-tag"] == (2).to_bytes(8, "big")
    assert client.sender("small").send(message(b"again")) == Accepted()
    assert [event.data for event in log.read()] == [b"before", b"after", b"again"], "what came is stored"


def test_a_settled_message_that_the_log_refuses_ends_its_link_and_is_named(served: Served, client: Client) -> None:
    def event(data: bytes) -> Message:
        names = {"cloudEvents:specversion": "1.0", "cloudEvents:type": "T", "cloudEvents:source": "/s"}
        return Message([data], DATA, application_properties={**names, "cloudEvents:id": "1"})

    sender = client.sender("orders")
    sender.send_all([event(b"one"), event(b"another")], is_settled=True)
    client.wait(lambda: sender.error is not None)
    assert sender.error is not None and sender.error.info is not None
    assert sender.error.condition == conditions.PRECONDITION_FAILED
    assert sender.error.info["delivery-tag"] == (2).to_bytes(8, "big") and sender.error.info["id"] == "1"


def test_a_settled_message_to_nowhere_ends_the_anonymous_link_and_is_named(served: Served, client: Client) -> None:
    """The anonymous terminus, 2.2.2: the error that an attach to that address would meet."""
    sender = client.sender(None)
    messages = [Message([b"x"], DATA, properties=Properties(to=to)) for to in ("orders", "nowhere", "orders")]
    sender.send_all(messages, is_settled=True)
    client.wait(lambda: sender.error is not None)
    assert sender.error is not None and sender.error.info is not None
    assert sender.error.condition == conditions.NOT_FOUND
    assert sender.error.info["delivery-tag"] == (2).to_bytes(8, "big")
    eventually(lambda: served.log("orders").head() == 2)


@pytest.mark.parametrize(
    ("outcomes", "is_rejected"),
    [((), True), (("amqp:accepted:list", "amqp:rejected:list"), True), (("amqp:accepted:list",), False)],
    ids=["none listed", "listed", "not listed"],
)
def test_rejected_is_sent_where_the_source_does_not_leave_it_out(
    client: Client, outcomes: tuple[str, ...], is_rejected: bool
) -> None:
    source = Source(address="here", outcomes=tuple(Symbol(each) for each in outcomes))
    sender = client.sender("orders", source=source)
    if is_rejected:
        assert isinstance(sender.send(b"\x00\x53\x99\x45"), Rejected)
        assert sender.send(message()) == Accepted()
    else:
        with pytest.raises(AmqpError) as ended:
            sender.send(b"\x00\x53\x99\x45")
        assert ended.value.condition == conditions.DECODE_ERROR
        assert ended.value.info == {"delivery-tag": (1).to_bytes(8, "big")}


def test_a_link_without_a_target_finds_the_one_that_it_had(served: Served) -> None:
    """A sender that comes back to ask for its outcomes need not remember where it sent (2.6.3)."""
    with served.client(container_id="device") as first:
        sender = first.sender("orders", name="link", rcv_settle_mode=1)
        sender.link.send(b"\x00\x53\x75\xa0\x01x", 7, 7)
        first.flush()
        eventually(lambda: served.log("orders").head() == 1)
        first.drop()
    with served.client(container_id="device") as second:
        again = second.session.attach_sender("link", source=Source(), rcv_settle_mode=1)
        second.wait(lambda: again.remote is not None)
        assert again.remote is not None and again.remote.target == Target(address="orders")
        assert again.remote.unsettled == {(7).to_bytes(8, "big"): Accepted()}
