"""Consumers: where they begin, what they get, and how it looks on the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.amqp.client import Client
from headwater.amqp.filters import format_offset
from headwater.amqp.protocol import conditions
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.message import DATA, DATAS, SEQUENCE, VALUE, Message, Properties, encode_message
from headwater.amqp.protocol.performatives import Accepted, Source, Target
from headwater.amqp.protocol.settings import ConnectionSettings
from headwater.amqp.protocol.types import Described, Symbol, Timestamp, UByte, ULong
from headwater.core import Event, LogSettings
from headwater.core.local import LocalLog
from headwater.storage import Engine
from headwater.storage.segments.segment import Segment

from .asking import (
    ASSOCIATED_PARTITIONS,
    EARLIEST,
    LATEST,
    OFFSET,
    SOURCE_PARTITION,
    TIMESTAMP,
    after,
    annotation,
    annotations_filter,
    bound,
    described,
    drained,
    message,
    numbers,
    offsets,
    payloads,
    put,
    sql,
)
from .served import Served


@pytest.fixture
def log(served: Served) -> LocalLog:
    return served.log("orders")


def pages_read(log: LocalLog, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where the pages begin that are read from now on."""
    begins: list[int] = []
    read_page = log.read_page

    def reading(query: object, after: int, **bounds: object) -> object:
        begins.append(after)
        return read_page(query, after, **bounds)  # type: ignore[arg-type]

    monkeypatch.setattr(log, "read_page", reading)
    return begins


# What is offered


def test_open_offers_the_event_streams_capability(client: Client) -> None:
    assert client.engine.remote is not None
    assert "AMQP_EVENT_STREAMS_V1_0" in client.engine.remote.offered_capabilities
    assert {"AMQP_FILTEX_SQL_V1_0", "AMQP_FILTEX_PROP_V1_0"} <= set(client.engine.remote.offered_capabilities)


def test_plain_sender_and_receiver_need_no_extension(client: Client) -> None:
    receiver = client.receiver("orders")
    assert client.sender("orders").send(message(b"payload")) == Accepted()
    assert payloads(receiver.take(1)) == [b"payload"]


# Where it begins


def test_receiver_without_filter_begins_now(log: LocalLog, client: Client) -> None:
    put(log, 1, 2)
    receiver = client.receiver("orders")
    put(log, 3, 4)
    assert numbers(receiver.take(2)) == [3, 4]


def test_filter_without_a_position_begins_now(log: LocalLog, client: Client) -> None:
    put(log, 1, type="A")
    receiver = client.receiver("orders", filter=sql("[cloudEvents:type] = 'A'"))
    put(log, 2, type="B")
    put(log, 3, type="A")
    assert numbers(receiver.take(1)) == [3]


SELECTOR = described("apache.org:selector-filter:string", "TRUE")
DELIVERY_FILTERS = {
    "annotations": described("amqp:event-streams-delivery-annotations-filter", {}),
    "sql": described("amqp:event-streams-sql-filter", "TRUE"),
    "in a group": described(
        "amqp:all-filter",
        [Described(Symbol("amqp:event-streams-sql-filter"), "d.event-streams-source-partition = '0'")],
    ),
}


@pytest.mark.parametrize("kind", DELIVERY_FILTERS)
def test_a_delivery_filter_is_evaluated_from_the_earliest_event(log: LocalLog, client: Client, kind: str) -> None:
    put(log, 1, 2)
    assert numbers(client.receiver("orders", filter=DELIVERY_FILTERS[kind]).take(2)) == [1, 2]


@pytest.mark.parametrize("filter", [None, SELECTOR], ids=["no filter", "selector"])
@pytest.mark.parametrize(
    ("address", "default_start", "expected"),
    [
        ("orders", "latest", [3]),
        ("orders", "earliest", [1, 2, 3]),
        ("orders/$earliest", "latest", [1, 2, 3]),
        ("orders/$latest", "earliest", [3]),
    ],
)
def test_a_log_and_an_address_have_a_default_start(
    served: Served, filter: Any, address: str, default_start: str, expected: list[int]
) -> None:
    log = served.store.change("orders", LogSettings(default_start=default_start))
    put(log, 1, 2)
    with served.client() as client:
        receiver = client.receiver(address, credit=0, filter=filter)
        assert receiver.link.remote.source.address == address
        put(log, 3)
        assert numbers(drained(client, receiver)) == expected


def test_a_position_in_the_filter_goes_before_the_default_start(log: LocalLog, client: Client) -> None:
    put(log, 1, 2, 3)
    assert numbers(drained(client, client.receiver("orders/$earliest", credit=0, filter=after(2)))) == [3]
    latest = client.receiver("orders/$latest", credit=0, filter=DELIVERY_FILTERS["sql"])
    assert numbers(drained(client, latest)) == []


BROWSE = {"distribution_mode": Symbol("copy"), "expiry_policy": Symbol("link-detach")}
"""The source of JMS's QueueBrowser."""


@pytest.mark.parametrize(
    ("source", "fields", "expected"),
    [
        (BROWSE, {}, [1, 2, 3]),
        (BROWSE, {"filter": SELECTOR}, [1, 2, 3]),
        (BROWSE, {"filter": after(1)}, [2, 3]),
        (BROWSE, {"address": "orders/$latest"}, [3]),
        (BROWSE, {"properties": bound(group="billing")}, [3]),
        ({**BROWSE, "distribution_mode": Symbol("move")}, {}, [3]),
        ({**BROWSE, "distribution_mode": None}, {}, [3]),
        ({**BROWSE, "expiry_policy": Symbol("session-end")}, {}, [3]),
        ({**BROWSE, "durable": 1}, {}, [3]),
    ],
)
def test_a_browse_begins_at_the_earliest_event(
    log: LocalLog, client: Client, source: dict[str, Any], fields: dict[str, Any], expected: list[int]
) -> None:
    put(log, 1, 2)
    receiver = client.receiver(**{"address": "orders", "credit": 0, "source": source, **fields})
    put(log, 3)
    assert numbers(drained(client, receiver)) == expected


def test_a_client_that_uses_the_extensions_begins_now_with_the_same_source(
    served: Served, log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def desiring(*, open_fields: dict[str, Any], **others: Any) -> ConnectionSettings:
        desired = (Symbol("AMQP_EVENT_STREAMS_V1_0"),)
        return ConnectionSettings(open_fields={**open_fields, "desired_capabilities": desired}, **others)

    monkeypatch.setattr("headwater.amqp.client.ConnectionSettings", desiring)
    put(log, 1)
    with served.client() as client:
        receiver = client.receiver("orders", credit=0, source=BROWSE)
        put(log, 2)
        assert numbers(drained(client, receiver)) == [2]


def test_an_address_with_a_start_takes_messages_too(served: Served, client: Client) -> None:
    assert client.sender("orders/$earliest").send(message()) == Accepted()
    assert served.log("orders").head() == 1


def test_filter_with_a_position_is_evaluated_from_the_earliest_event(log: LocalLog, client: Client) -> None:
    put(log, *range(1, 10))
    filter = described("amqp:event-streams-sql-filter", f"d.event-streams-offset <= '{format_offset(3)}'")
    assert numbers(client.receiver("orders", filter=filter).take(3)) == [1, 2, 3]


def test_receiver_begins_after_an_offset(log: LocalLog, client: Client) -> None:
    put(log, *range(1, 10))
    assert numbers(client.receiver("orders", filter=after(6)).take(3)) == [7, 8, 9]


def test_earliest_is_everything_retained(log: LocalLog, client: Client) -> None:
    put(log, 1, 2, 3)
    receiver = client.receiver("orders", filter=EARLIEST)
    put(log, 4)
    assert numbers(receiver.take(4)) == [1, 2, 3, 4]


def test_latest_is_what_is_added_after_the_attach(log: LocalLog, client: Client) -> None:
    put(log, 1, 2, 3)
    receivers = [
        client.receiver("orders", filter=filter)
        for filter in (LATEST, sql("d.event-streams-offset > '@latest'"), sql("d.event-streams-offset >= '@latest'"))
    ]
    put(log, 4, 5)
    assert [numbers(receiver.take(2)) for receiver in receivers] == [[4, 5]] * 3


def test_an_offset_is_sought_and_not_scanned_for(
    log: LocalLog, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append([Event("T", b"%d" % number) for number in range(1, 5001)])
    pages = pages_read(log, monkeypatch)
    assert numbers(client.receiver("orders", credit=2, filter=after(4000)).take(2)) == [4001, 4002]
    assert pages[0] == 4000 and len(pages) <= 3


def test_a_timestamp_is_sought_and_not_scanned_for(
    log: LocalLog, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for second in range(1, 11):
        monkeypatch.setattr(log, "_clock", lambda second=second: 1000 * second)
        log.append([Event("T", b"%d" % second)] * 500)
    pages = pages_read(log, monkeypatch)
    receiver = client.receiver("orders", credit=1, filter=annotations_filter(timestamp=Timestamp(6999)))
    assert offsets(receiver.take(1)) == [3001]
    assert pages[0] == 3000 and len(pages) <= 3


# Filters


KINDS: list[tuple[object, object, list[int]]] = [
    ("amqp:event-streams-delivery-annotations-filter", {OFFSET: format_offset(4)}, [5, 6]),
    (ULong(0x200), {OFFSET: format_offset(4)}, [5, 6]),
    ("amqp:event-streams-sql-filter", f"d.event-streams-offset >= '{format_offset(5)}'", [5, 6]),
    ("amqp:sql-filter", "properties.subject LIKE 'B%' AND d.event-streams-offset > '@earliest'", [2, 4, 6]),
    (ULong(0x120), "p.subject = 'A' AND d.event-streams-offset > '@earliest'", [1, 3, 5]),
    ("amqp:properties-filter", {"subject": "A"}, [1, 3, 5]),
    ("amqp:application-properties-filter", {"cloudEvents:type": "B"}, [2, 4, 6]),
    ("amqp:header-filter", {"priority": UByte(4)}, [1, 2, 3, 4, 5, 6]),
    ("amqp:message-annotations-filter", {Symbol("event-streams-group-key"): "even"}, [2, 4, 6]),
    ("amqp:delivery-annotations-filter", {SOURCE_PARTITION: Symbol("0")}, [1, 2, 3, 4, 5, 6]),
    ("amqp:not-filter", Described(Symbol("amqp:properties-filter"), {"subject": "A"}), [2, 4, 6]),
    (
        "amqp:any-filter",
        [Described(Symbol("amqp:properties-filter"), {"subject": type}) for type in "AB"],
        [1, 2, 3, 4, 5, 6],
    ),
    (
        "amqp:all-filter",
        [Described(Symbol("amqp:true-filter"), None), Described(ULong(0x173), {"subject": "A"})],
        [1, 3, 5],
    ),
    ("apache.org:selector-filter:string", "amqp.subject = 'A' AND JMSPriority = 4", [1, 3, 5]),
    ("headwater:query-filter", '{"items": [{"types": ["B"], "tags": ["half:2"]}]}', [4, 6]),
]


@pytest.mark.parametrize(("descriptor", "value", "expected"), KINDS, ids=[f"{kind[0]}" for kind in KINDS])
def test_each_kind_of_filter_is_echoed_and_kept(
    log: LocalLog, client: Client, descriptor: object, value: object, expected: list[int]
) -> None:
    for number in range(1, 7):
        group_key = "odd" if number % 2 else "even"
        put(log, number, type="BA"[number % 2], tags=(f"half:{1 + number // 4}",), group_key=group_key)
    descriptor = Symbol(descriptor) if isinstance(descriptor, str) else descriptor
    given = {**EARLIEST, "kind": Described(descriptor, value)}
    receiver = client.receiver("orders", credit=0, filter=given)
    assert receiver.link.remote.source.filter == given
    assert numbers(drained(client, receiver)) == expected


def test_an_unsupported_filter_is_left_out_of_the_echo(log: LocalLog, client: Client) -> None:
    put(log, 1, 2)
    unknown = Described(Symbol("example:colour-filter"), "red")
    receiver = client.receiver("orders", filter={**EARLIEST, "colour": unknown})
    assert receiver.link.remote.source.filter == EARLIEST
    assert numbers(receiver.take(2)) == [1, 2]
    assert client.receiver("orders", filter={"colour": unknown}).link.remote.source.filter is None


@pytest.mark.parametrize(
    "filter",
    [
        sql("subject ="),
        sql("p.no-such-property = 1"),
        described("amqp:event-streams-sql-filter", "subject = 'A'"),
        described("amqp:sql-filter", 17),
        described("apache.org:selector-filter:string", "NOT"),
        described("headwater:query-filter", '{"items": 3}'),
        annotations_filter(offset=17),
        annotations_filter(colour=Symbol("red")),
    ],
)
def test_an_invalid_filter_is_refused_with_a_null_source(client: Client, filter: dict[str, object]) -> None:
    receiver = client.receiver("orders", filter=filter, waits=False)
    with pytest.raises(AmqpError) as refused:
        receiver.attached()
    assert refused.value.condition == conditions.INVALID_FIELD
    assert receiver.link.remote is not None and receiver.link.remote.source is None
    assert client.sender("orders").send(message()) == Accepted()


FEW_FILTERS = {
    "query": described("headwater:query-filter", '{"items": [{"tags": ["seat:12A"]}]}'),
    "sql": sql("[cloudEvents:type] = 'SeatTaken'"),
    "selector": described("apache.org:selector-filter:string", "\"cloudEvents:type\" = 'SeatTaken'"),
}


@pytest.mark.parametrize("kind", ["query", "sql"])
def test_a_few_of_many_are_found_by_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with Engine(tmp_path) as store, Served(store=store) as served:
        log = served.log("orders")
        wanted = []
        for number in range(200):
            log.append([Event("Other", b"", ("seat:1B",))] * 100)
            if number % 20 == 7:
                wanted.append(log.append([Event("SeatTaken", b"", ("seat:12A",))]).first)
        with served.client() as client:
            receiver = client.receiver("orders", credit=0, filter={**EARLIEST, **FEW_FILTERS[kind]})
            frames = []
            frame = Segment.frame
            monkeypatch.setattr(Segment, "frame", lambda segment, at: frames.append(at) or frame(segment, at))
            assert offsets(drained(client, receiver)) == wanted
            assert len(wanted) == 10 and len(frames) <= 20


# What comes


def test_every_delivery_says_where_it_stands(log: LocalLog, client: Client) -> None:
    receiver = client.receiver("orders")
    put(log, 1, 2)
    _, delivery = receiver.take(2)  # the first names the link's partitions, too
    _, event = log.read()
    found = delivery.message.delivery_annotations
    assert found == {
        OFFSET: format_offset(event.sequence_number), TIMESTAMP: event.recorded_at, SOURCE_PARTITION: Symbol("0"),
    }  # fmt: skip
    assert (type(found[OFFSET]), type(found[TIMESTAMP])) == (Symbol, Timestamp)


def test_first_transfer_of_an_agnostic_link_names_its_partitions(served: Served, client: Client) -> None:
    log = served.log("split", partitions=3)
    agnostic, one = client.receiver("split"), client.receiver("split", properties=bound(2))
    for partition in (2, 0, 2):
        put(log, partition, partition=partition)
    first, *others = agnostic.take(3)
    assert annotation(first, ASSOCIATED_PARTITIONS) == [Symbol("0"), Symbol("1"), Symbol("2")]
    assert all(annotation(each, ASSOCIATED_PARTITIONS) is None for each in (*others, *one.take(2)))


def test_first_transfer_of_a_log_with_one_partition_names_it_too(log: LocalLog, client: Client) -> None:
    receiver = client.receiver("orders")
    put(log, 1, 2)
    first, second = receiver.take(2)
    assert annotation(first, ASSOCIATED_PARTITIONS) == [Symbol("0")]
    assert annotation(second, ASSOCIATED_PARTITIONS) is None


@pytest.mark.parametrize("address", ["orders", "orders/$info"])
def test_a_receiver_is_sent_nothing_larger_than_it_takes(log: LocalLog, client: Client, address: str) -> None:
    put(log, bytes(1000))
    receiver = client.receiver(address, filter=EARLIEST, max_message_size=200)
    with pytest.raises(AmqpError) as ended:
        receiver.take(1)
    assert ended.value.condition == conditions.LINK_MESSAGE_SIZE_EXCEEDED and "200" in ended.value.description


def test_link_without_partition_is_agnostic(served: Served, client: Client) -> None:
    log = served.log("split", partitions=3)
    receiver = client.receiver("split")
    assert receiver.link.remote is not None
    assert "event-streams-partition" not in (receiver.link.remote.properties or {})
    assert "event-streams-consumer-group" not in (receiver.link.remote.properties or {})
    for partition in (2, 0, 1):
        put(log, partition, partition=partition)
    deliveries = receiver.take(3)
    assert numbers(deliveries) == [2, 0, 1]
    assert [annotation(each, SOURCE_PARTITION) for each in deliveries] == ["2", "0", "1"]


def test_bound_receiver_gets_its_partition_only(served: Served, client: Client) -> None:
    log = served.log("split", partitions=3)
    receiver = client.receiver("split", credit=0, properties=bound(1))
    assert receiver.link.remote is not None and receiver.link.remote.properties == bound(1)
    for partition in (0, 1, 2, 1, 0):
        put(log, partition, partition=partition)
    deliveries = drained(client, receiver)
    assert offsets(deliveries) == [2, 4]
    assert {annotation(each, SOURCE_PARTITION) for each in deliveries} == {"1"}


@pytest.mark.parametrize("partition", ["3", "x", "01", ""])
def test_partition_that_does_not_exist_is_refused(served: Served, client: Client, partition: str) -> None:
    served.log("split", partitions=3)
    with pytest.raises(AmqpError) as refused:
        client.receiver("split", properties=bound(partition))
    assert refused.value.condition == conditions.NOT_FOUND


BODIES = {
    "data": Message([b"one"], DATA, properties=Properties(subject="T", message_id=ULong(7))),
    "datas": Message([b"one", b"two"], DATAS),
    "value": Message({"a": [1, Symbol("b"), None]}, VALUE, application_properties={"x": Timestamp(5)}),
    "sequence": Message([[1, "two"], [3]], SEQUENCE, footer={Symbol("x-opt-sum"): 6}),
    "annotated": Message([b""], DATA, message_annotations={Symbol("x-opt-a"): UByte(1)}, properties=Properties()),
}


@pytest.mark.parametrize("kind", BODIES)
def test_the_bare_message_comes_byte_for_byte(log: LocalLog, client: Client, kind: str) -> None:
    encoded = encode_message(BODIES[kind])
    receiver = client.receiver("orders")
    assert client.sender("orders").send(encoded) == Accepted()
    (delivery,) = receiver.take(1)
    assert delivery.received.payload is not None and delivery.received.payload.endswith(encoded)
    assert delivery.message.body == BODIES[kind].body


def test_an_event_of_another_protocol_is_a_cloud_event(log: LocalLog, client: Client) -> None:
    receiver = client.receiver("orders")
    attributes = {"datacontenttype": "application/json", "subject": "4711"}
    log.append([Event("OrderPlaced", b"{}", ("order:4711",), "e-1", "/shop", attributes, "customer 7")])
    (delivery,) = receiver.take(1)
    message = delivery.message
    assert message.properties is not None
    assert (message.properties.message_id, message.properties.subject) == ("e-1", "OrderPlaced")
    assert message.properties.content_type == "application/json"
    found = {name.removeprefix("cloudEvents:"): value for name, value in message.application_properties.items()}
    assert found.pop("time").endswith("Z")
    assert found.pop("sequence") == "000000000000000001"
    assert found == {
        "specversion": "1.0", "id": "e-1", "source": "/shop", "type": "OrderPlaced", "tags": "order:4711",
        "subject": "4711", "partitionkey": "customer 7",
    }  # fmt: skip
    assert message.message_annotations == {"event-streams-group-key": "customer 7"}
    assert message.body == [b"{}"]


def test_a_large_message_comes_in_frames_between_small_ones(served: Served, client: Client) -> None:
    log = served.log("large")
    sizes = [10, 900_000, 20, 65_536, 30]
    receiver = client.receiver("large", filter=EARLIEST)
    put(log, *[bytes([number]) * size for number, size in enumerate(sizes)])
    assert payloads(receiver.take(5)) == [bytes([number]) * size for number, size in enumerate(sizes)]


# What of the log may change


def test_offset_below_the_first_retained_event_begins_there(log: LocalLog, client: Client) -> None:
    put(log, *range(1, 10))
    log.trim(5)
    deliveries = client.receiver("orders", filter=after(2)).take(5)
    assert numbers(deliveries) == [5, 6, 7, 8, 9]
    name = "x-opt-headwater-first-retained-offset"
    assert [annotation(each, name) for each in deliveries] == [format_offset(5), None, None, None, None]


def test_earliest_is_the_first_retained_event(log: LocalLog, client: Client) -> None:
    put(log, *range(1, 10))
    log.trim(5)
    assert numbers(client.receiver("orders", filter=EARLIEST).take(5)) == [5, 6, 7, 8, 9]


def test_receiver_overtaken_by_a_trim_is_detached(log: LocalLog, client: Client) -> None:
    put(log, *range(1, 10))
    receiver = client.receiver("orders", credit=0, filter=EARLIEST)
    receiver.link.grant(2)
    assert numbers(receiver.take(2)) == [1, 2]
    log.trim(6)
    receiver.link.grant(2)
    with pytest.raises(AmqpError) as ended:
        receiver.take(1)
    assert ended.value.condition == conditions.RESOURCE_DELETED


def test_receivers_of_a_deleted_log_are_detached(served: Served, log: LocalLog, client: Client) -> None:
    receiver = client.receiver("orders")
    served.store.delete("orders")
    with pytest.raises(AmqpError) as ended:
        receiver.take(1)
    assert ended.value.condition == conditions.RESOURCE_DELETED
    with pytest.raises(AmqpError) as refused:
        client.receiver("orders")
    assert refused.value.condition == conditions.NOT_FOUND


def test_an_offset_of_a_deleted_log_is_refused_by_the_next_of_its_name(
    served: Served, log: LocalLog, client: Client
) -> None:
    put(log, *range(1, 10))
    client.receiver("orders")
    served.store.delete("orders")
    put(served.log("orders"), b"new")
    with pytest.raises(AmqpError) as refused:
        client.receiver("orders", filter=after(4))
    assert refused.value.condition == conditions.RESOURCE_DELETED
    assert payloads(client.receiver("orders", filter=EARLIEST).take(1)) == [b"new"]
    assert client.sender("orders").send(message()) == Accepted()


def test_dynamic_nodes_are_refused(client: Client) -> None:
    with pytest.raises(AmqpError) as refused:
        client.receiver("orders", source={"dynamic": True})
    assert refused.value.condition == conditions.NOT_IMPLEMENTED
    link = client.session.attach_sender("dynamic", source=Source(), target=Target(dynamic=True))
    client.wait(lambda: link.is_over)
    assert link.remote is not None and link.remote.target is None
