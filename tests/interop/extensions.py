"""What a client can do that reaches link properties, annotations and described filters: the Event Stream Extensions."""

from __future__ import annotations

from typing import Any

import pytest

from .basics import stored
from .driving import Client, data, plain, symbol, texts
from .filters import EARLIEST, after, event_streams_sql, query, sql
from .serving import Broker

OFFSET, TIMESTAMP, PARTITION = (f"event-streams-{name}" for name in ("offset", "timestamp", "source-partition"))


def offsets(messages: list[dict[str, Any]]) -> list[str]:
    """The offsets of messages received."""
    return [message["delivery_annotations"][OFFSET] for message in messages]


class Extensions:
    """The tests; a class for one client derives from it."""

    def test_every_message_says_where_and_when_it_was_added(self, client: Client, broker: Broker) -> None:
        log = broker.log(partitions=2)
        client.send(log, *(data(f"m{n}") for n in range(5)))
        messages = client.receive(log, 5, filters=EARLIEST).messages
        assert texts(messages) == [f"m{n}" for n in range(5)]
        found = offsets(messages)
        assert found == sorted(found) and len(set(found)) == 5
        recorded = {event.recorded_at for event in stored(broker, log)}
        assert {message["delivery_annotations"][TIMESTAMP] for message in messages} <= recorded
        assert {message["delivery_annotations"][PARTITION] for message in messages} <= {"0", "1"}

    @pytest.mark.parametrize("descriptor", [0x200, "amqp:event-streams-delivery-annotations-filter"])
    def test_an_offset_filter_resumes_after_the_offset(
        self, client: Client, broker: Broker, descriptor: int | str
    ) -> None:
        log = broker.log()
        client.send(log, *(data(f"m{n}") for n in range(6)))
        seen = client.receive(log, 3, filters=EARLIEST, credit=3).messages
        answer = client.receive(log, 3, filters=after(offsets(seen)[-1], descriptor))
        assert texts(answer.messages) == ["m3", "m4", "m5"]
        assert answer.one("attached")["filters"], "the filter is not echoed"

    def test_an_event_streams_sql_filter_compares_offsets(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        client.send(log, *(data(f"m{n}") for n in range(4)))
        second = offsets(client.receive(log, 4, filters=EARLIEST).messages)[1]
        for sign, expected in ((">", ["m2", "m3"]), (">=", ["m1", "m2", "m3"])):
            filters = event_streams_sql(f"d.event-streams-offset {sign} '{second}'")
            assert texts(client.receive(log, len(expected), filters=filters).messages) == expected

    def test_a_sql_filter_reaches_every_section(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        for n in range(6):
            properties = {"subject": f"kind-{n % 2}"}
            client.send(log, data(f"m{n}", application_properties={"n": n}, properties=properties))
        filters = sql("d.event-streams-offset >= '@earliest' AND n > 1 AND p.subject LIKE '%-1'")
        assert texts(client.receive(log, 2, filters=filters).messages) == ["m3", "m5"]

    def test_an_invalid_sql_filter_is_refused_with_invalid_field(self, client: Client, broker: Broker) -> None:
        answer = client.receive(broker.log(), 1, filters=sql("n > > 1"))
        assert answer.error and answer.error["condition"] == "amqp:invalid-field", answer.told

    def test_a_filter_that_is_not_supported_is_left_out_of_the_echo(self, client: Client, broker: Broker) -> None:
        unknown = [{"name": "example:unknown-filter", "descriptor": "example:unknown-filter", "value": "x"}]
        answer = client.run("receive", broker.log(), filters=unknown, drain=True, credit=1)
        assert answer.one("attached")["filters"] == {} and answer.error is None, answer.told

    def test_a_query_filter_asks_the_index(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        for n in range(4):
            client.send(log, data(f"m{n}", properties={"subject": "a" if n % 2 else "b"}))
        answer = client.receive(log, 2, filters=[*query("type=a"), *EARLIEST])
        assert texts(answer.messages) == ["m1", "m3"]

    def test_draining_gives_what_there_is_and_the_rest_of_the_credit_back(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        client.send(log, *(data(f"m{n}") for n in range(3)))
        answer = client.run("receive", log, filters=EARLIEST, drain=True, credit=10)
        assert answer.one("drained")["received"] == 3 and texts(answer.messages) == ["m0", "m1", "m2"]

    def test_a_bound_receiver_gets_one_partition(self, client: Client, broker: Broker) -> None:
        log = broker.log(partitions=3)
        for n in range(6):
            target = {"event-streams-target-partition": symbol(str(n % 3))}
            assert client.send(log, data(f"m{n}", delivery_annotations=target)).one("sent").get("accepted") == 1
        bound = {"event-streams-partition": symbol("1")}
        answer = client.receive(log, 2, filters=EARLIEST, link_properties=bound)
        assert texts(answer.messages) == ["m1", "m4"]
        assert plain(answer.one("attached")["properties"])["event-streams-partition"] == "1"
        assert {message["delivery_annotations"][PARTITION] for message in answer.messages} == {"1"}
        assert all(
            "event-streams-target-partition" not in message["message_annotations"] for message in answer.messages
        )

    def test_a_bound_sender_fills_one_partition(self, client: Client, broker: Broker) -> None:
        log = broker.log(partitions=3)
        bound = {"event-streams-partition": symbol("2")}
        answer = client.send(log, *(data(f"m{n}") for n in range(4)), link_properties=bound)
        assert plain(answer.one("attached")["properties"])["event-streams-partition"] == "2"
        assert [event.partition for event in stored(broker, log)] == [2] * 4

    def test_a_partition_that_is_not_there_is_refused(self, client: Client, broker: Broker) -> None:
        log = broker.log(partitions=2)
        for operation in ("send", "receive"):
            answer = client.run(operation, log, link_properties={"event-streams-partition": symbol("9")})
            assert answer.error and answer.error["scope"] == "link", answer.told
            assert not answer.all("sent") and not answer.all("message")

    def test_a_target_partition_that_does_not_fit_is_rejected(self, client: Client, broker: Broker) -> None:
        log = broker.log(partitions=2)
        wrong = {"event-streams-target-partition": symbol("9")}
        answer = client.send(log, data("good"), data("bad", delivery_annotations=wrong), data("fine"))
        assert [(each["index"], each["outcome"]) for each in answer.all("outcome")] == [(1, "rejected")], answer.told
        assert answer.one("sent").get("accepted") == 2
        other = {"event-streams-target-partition": symbol("0")}
        bound = {"event-streams-partition": symbol("1")}
        answer = client.send(log, data("elsewhere", delivery_annotations=other), link_properties=bound)
        assert answer.one("outcome")["outcome"] == "rejected", answer.told
        assert sorted(event.data for event in stored(broker, log)) == [b"fine", b"good"]

    def test_a_group_key_keeps_events_together(self, client: Client, broker: Broker) -> None:
        log = broker.log(partitions=4)
        for n in range(8):
            key = {"event-streams-group-key": f"key-{n % 2}"}
            client.send(log, data(f"m{n}", message_annotations=key))
        events = stored(broker, log)
        assert all(len({event.partition for event in events[start::2]}) == 1 for start in (0, 1))

    def test_a_greater_epoch_takes_the_link_over(self, client: Client, broker: Broker) -> None:
        log = broker.log()

        def claim(epoch: int) -> dict[str, Any]:
            return {
                "event-streams-partition": symbol("0"),
                "event-streams-consumer-group": "workers",
                "event-streams-epoch": {"$ulong": epoch},
            }

        with client.start("receive", log, count=100, link_properties=claim(1)) as old:
            attached = old.wait_for("attached")
            assert plain(attached["properties"])["event-streams-epoch"] == 1
            refused = client.receive(log, 1, link_properties=claim(1))
            assert refused.error and refused.error["condition"] == "amqp:resource-locked", refused.told
            with client.start("receive", log, count=1, link_properties=claim(2)) as new:
                assert plain(new.wait_for("attached")["properties"])["event-streams-epoch"] == 2
                stolen = old.end()
                assert stolen.error and stolen.error["condition"] == "amqp:link:stolen", stolen.told
                client.send(log, data("m"))
                assert texts(new.end().messages) == ["m"]

    def test_members_of_a_group_share_the_partitions(self, client: Client, broker: Broker) -> None:
        log = broker.log(partitions=2)
        group = {"event-streams-consumer-group": "workers"}
        with (
            client.start("receive", log, count=100, link_properties=group) as one,
            client.start("receive", log, count=100, link_properties=group) as other,
        ):
            links = [plain(member.wait_for("attached")["properties"]) for member in (one, other)]
        assert sorted(link["event-streams-partition"] for link in links) == ["0", "1"]
        assert {link["event-streams-consumer-group"] for link in links} == {"workers"}

    def test_a_durable_terminus_keeps_its_position(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        client.send(log, *(data(f"m{n}") for n in range(6)))
        durable = {"durable_terminus": True, "link_name": f"reader-of-{log}", "container_id": f"container-of-{log}"}
        first = client.receive(log, 2, filters=EARLIEST, credit=2, **durable)
        again = client.receive(log, 4, filters=EARLIEST, credit=2, **durable)
        assert [texts(answer.messages) for answer in (first, again)] == [["m0", "m1"], ["m2", "m3", "m4", "m5"]], (
            again.told
        )

    @pytest.mark.parametrize("outcome", ["reject", "modify"])
    def test_a_final_outcome_other_than_accepted_moves_on(self, client: Client, broker: Broker, outcome: str) -> None:
        log = broker.log()
        client.send(log, data("a"), data("b"), data("c"))
        answer = client.receive(log, 3, filters=EARLIEST, outcome=outcome, credit=1)
        assert texts(answer.messages) == ["a", "b", "c"]

    def test_what_is_released_comes_again(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        client.send(log, data("a"), data("b"))
        answer = client.receive(log, 5, filters=EARLIEST, outcome="release", credit=1)
        assert set(texts(answer.messages)) <= {"a", "b"} and len(answer.messages) == 5

    def test_a_small_frame_size_is_respected(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        client.send(log, {"size": 20_000})
        answer = client.receive(log, 1, filters=EARLIEST, max_frame_size=512)
        assert answer.one("message")["size"] == 20_000

    def test_values_of_every_kind_come_back_as_they_were(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        given = {"text": "é", "whole": {"$int": -5}, "large": {"$ulong": 2**40}, "real": 2.5, "yes": True, "none": None}
        value = {"list": [1, "two", {"$symbol": "three"}], "map": {"a": {"$timestamp": 1_700_000_000_000}}}
        client.send(log, {"value": value, "application_properties": given, "properties": {"message_id": "id-1"}})
        message = client.receive(log, 1, filters=EARLIEST).messages[0]
        assert message["application_properties"] == plain(given)
        assert message["value"] == plain(value)
        assert message["properties"]["message_id"] == "id-1"


class Refusals:
    """What only a client proves that tells of a link which the peer detaches while it sends."""

    def test_a_refused_presettled_message_ends_its_link(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        messages = [data("a", properties={"to": log}), data("b", properties={"to": "nowhere"})]
        answer = client.send(None, *messages, settled=True, hold_s=10)
        assert answer.error, answer.told
        assert (answer.error["scope"], answer.error["condition"]) == ("link", "amqp:not-found"), answer.told
        assert [event.data for event in stored(broker, log)] == [b"a"]


class NamedRefusals(Refusals):
    """The same, for a client that shows the info of an error."""

    def test_the_error_names_the_delivery(self, client: Client, broker: Broker) -> None:
        wrong = {"event-streams-target-partition": symbol("9")}
        refused = data("bad", delivery_annotations=wrong)
        answer = client.send(broker.log(partitions=2), data("good"), refused, settled=True, hold_s=10)
        assert answer.error and answer.error["condition"] == "amqp:not-found", answer.told
        assert "delivery-tag" in answer.error["info"], answer.told


class Negotiation:
    """What only a client that shows the peer's open can prove."""

    def test_the_open_offers_event_streams_and_filters(self, client: Client) -> None:
        opened = client.run("connect").one("opened")
        offered = set(plain(opened["offered_capabilities"]))
        assert {"AMQP_EVENT_STREAMS_V1_0", "AMQP_FILTEX_SQL_V1_0", "ANONYMOUS-RELAY"} <= offered
        assert opened["max_frame_size"] >= 512 and opened["properties"]["product"]


class SecondSettling:
    """What only a client with receiver settle mode second can prove."""

    def test_a_receiver_that_settles_second_waits_for_the_sender(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        client.send(log, data("a"), data("b"))
        answer = client.receive(log, 2, filters=EARLIEST, rcv_second=True, hold_s=1)
        assert texts(answer.messages) == ["a", "b"] and answer.error is None
        assert len(answer.all("settled_by_peer")) == 2, answer.told
