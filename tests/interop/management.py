"""What a client can do that has dynamic sources and described filters of any kind: `$management` and `$events`."""

from __future__ import annotations

from typing import Any

from .driving import Client, plain
from .filters import selector
from .serving import Broker

LOG = "io.headwater.log"


def asking(operation: str, value: Any = None, **properties: Any) -> dict[str, Any]:
    """A request to a management node."""
    form = {"application_properties": {"operation": operation, **properties}, "properties": {"message_id": operation}}
    return form if value is None else {**form, "value": value}


def transformation(*attributes: str, compact: bool) -> list[dict[str, Any]]:
    """The notification transformation, as a filter."""
    value = {"requestedAttributes": list(attributes), "compact": compact}
    return [{"name": "form", "descriptor": "headwater:transformation", "value": value}]


class Hearing:
    """What every client can do that has selectors; a class for one client derives from it."""

    def test_events_are_heard_by_selector(self, client: Client, broker: Broker) -> None:
        filters = selector(f"eventType = '{LOG}.created' AND partitions > 1")
        with client.start("receive", "$events", count=2, filters=filters) as running:
            running.wait_for("attached")
            names = [broker.log(partitions) for partitions in (1, 2, 3)]
            found = running.end().messages
        assert [message["application_properties"]["log"] for message in found] == names[1:]
        assert {message["application_properties"]["eventType"] for message in found} == {f"{LOG}.created"}


class Managing(Hearing):
    """What needs dynamic sources, or filters of any kind, too."""

    def test_a_log_is_managed_by_requests_and_answers(self, client: Client, broker: Broker) -> None:
        name = f"{broker.log()}-managed"
        answer = client.request(
            "$management",
            asking("CREATE", {"retentionMs": 5000}, type=LOG, name=name),
            asking("READ", type=LOG, name=name),
            asking("UPDATE", {"retentionMs": None}, type=LOG, name=name),
            asking("DELETE", type=LOG, name=name),
            asking("READ", type=LOG, name=name),
            asking("QUERY", {"attributeNames": ["name", "head"]}, entityType=LOG, count=1000),
            asking("GET-EVENTS", eventType=f"{LOG}.created"),
            asking("NOTHING"),
        )
        messages = answer.messages
        statuses = [message["application_properties"]["statusCode"] for message in messages]
        assert statuses == [201, 200, 200, 204, 404, 200, 200, 501], answer.told
        assert [message["application_properties"]["status-code"] for message in messages] == statuses
        assert messages[0]["properties"]["correlation_id"] == "CREATE"
        assert messages[1]["value"]["retentionMs"] == 5000
        assert messages[2]["value"]["retentionMs"] is None
        assert messages[5]["value"]["attributeNames"] == ["name", "head"]
        assert [name.removesuffix("-managed"), 0] in messages[5]["value"]["results"]
        assert messages[5]["application_properties"]["count"] == len(messages[5]["value"]["results"])
        assert messages[6]["value"][f"{LOG}.created"][:2] == ["eventType", "time"]

    def test_a_request_that_is_not_known_here_says_so(self, client: Client) -> None:
        answer = client.request("$management", asking("PURGE", type=LOG, name="x"))
        (message,) = answer.messages
        assert message["application_properties"]["statusCode"] == 501
        assert "PURGE" in message["application_properties"]["statusDescription"]

    def test_the_subject_of_an_event_is_its_type(self, client: Client, broker: Broker) -> None:
        filters = selector(f"eventType = '{LOG}.created'")
        with client.start("receive", "$events", count=1, filters=filters) as running:
            assert plain(running.wait_for("attached")["filters"])
            broker.log()
            (message,) = running.end().messages
        assert message["properties"]["subject"] == f"{LOG}.created"

    def test_events_come_in_the_compact_form(self, client: Client, broker: Broker) -> None:
        filters = selector(f"eventType = '{LOG}.created'") + transformation("partitions", "none", "log", compact=True)
        with client.start("receive", "$events", count=1, filters=filters) as running:
            running.wait_for("attached")
            name = broker.log(4)
            (message,) = running.end().messages
        assert message["value"] == [4, None, name]
        assert message["application_properties"] == {} and "subject" not in message["properties"]

    def test_an_invalid_filter_of_events_refuses_the_link(self, client: Client) -> None:
        answer = client.run("receive", "$events", filters=selector("eventType = ="))
        assert answer.error and answer.error["condition"] == "amqp:invalid-field", answer.told
