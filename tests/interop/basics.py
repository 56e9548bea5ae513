"""What every client can do with a log, as with any node of AMQP 1.0 (Event Stream Extensions, 3.2)."""

from __future__ import annotations

from typing import ClassVar

from headwater.client import connect
from headwater.core.event import SequencedEvent

from .driving import Client, data, texts
from .filters import selector
from .runtimes import Runtime
from .serving import PASSWORD, USER, Broker, Certificates

COUNT = 50
LARGE = 5 * 1024 * 1024
LARGE_LOG_BYTES_MAX = 8 * 1024 * 1024
LARGE_SHA256 = "16b632f11cf950dda67dc4c184a3f9e0aa1ffa4c18927bb8977e7da97ca25bca"
HEARTBEAT_MS = 2200
"""Some clients announce half of it; the server takes no less than 1000."""
HOLD_S = 3.5


def stored(broker: Broker, log: str) -> list[SequencedEvent]:
    """The events of a log, read over HTTP."""
    with connect(broker.url) as server:
        return list(server.log(log).read())


class Basics:
    """The tests; a class for one client derives from it and says which."""

    RUNTIME: ClassVar[type[Runtime]]

    def test_what_is_accepted_is_stored_in_order(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        messages = [data(f"m{n}", properties={"subject": "tried"}) for n in range(COUNT)]
        answer = client.send(log, *messages)
        assert answer.one("sent").get("accepted") == COUNT, answer.told
        events = stored(broker, log)
        assert [event.data for event in events] == [f"m{n}".encode() for n in range(COUNT)]
        assert {event.type for event in events} == {"tried"}

    def test_presettled_messages_are_stored(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        answer = client.send(log, *(data(f"m{n}") for n in range(COUNT)), settled=True, hold_s=0.5)
        assert answer.one("sent") == {"event": "sent", "settled": COUNT}
        # A session that is closed in order has been read to its end; whatever came before the close is appended.
        client.send(log, data("last"))
        assert sorted(event.data for event in stored(broker, log)) == sorted(
            [b"last", *(f"m{n}".encode() for n in range(COUNT))]
        )

    def test_a_receiver_gets_what_comes_after_it_attached(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        client.send(log, data("before"))
        with client.start("receive", log, count=COUNT, credit=7) as receiver:
            receiver.wait_for("attached")
            client.send(log, *(data(f"m{n}", application_properties={"n": n}) for n in range(COUNT)))
            answer = receiver.end()
        assert texts(answer.messages) == [f"m{n}" for n in range(COUNT)]
        assert [message["application_properties"]["n"] for message in answer.messages] == list(range(COUNT))

    def test_two_receivers_get_the_same_events(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        with (
            client.start("receive", log, count=2) as first,
            client.start("receive", log, count=2, settled=True) as second,
        ):
            first.wait_for("attached")
            second.wait_for("attached")
            client.send(log, data("a"), data("b"))
            assert texts(first.end().messages) == texts(second.end().messages) == ["a", "b"]

    def test_a_large_message_travels_in_many_frames(self, client: Client, broker: Broker) -> None:
        log = broker.log(event_bytes_max=LARGE_LOG_BYTES_MAX)
        with client.start("receive", log, count=1) as receiver:
            receiver.wait_for("attached")
            sent = client.send(log, {"size": LARGE})
            assert sent.one("sent").get("accepted") == 1, sent.told
            message = receiver.end().one("message")
        assert (message["size"], message["sha256"]) == (LARGE, LARGE_SHA256)

    def test_a_message_too_large_is_refused_and_the_rest_is_stored(self, client: Client, broker: Broker) -> None:
        log = broker.log(event_bytes_max=1024)
        client.send(log, data("before"))
        answer = client.send(log, {"size": 100_000})
        assert answer.error or answer.all("outcome"), answer.told
        client.send(log, data("after"))
        assert [event.data for event in stored(broker, log)] == [b"before", b"after"]

    def test_a_selector_chooses_by_application_properties(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        with client.start("receive", log, count=2, filters=selector("n > 3 AND colour LIKE 're%'")) as receiver:
            receiver.wait_for("attached")
            colours = ["red", "blue", "red", "red", "red", "blue", "reed"]
            given = [data(f"m{n}", application_properties={"n": n, "colour": colours[n]}) for n in range(7)]
            client.send(log, *given)
            assert texts(receiver.end().messages) == ["m4", "m6"]

    def test_an_invalid_selector_is_refused(self, client: Client, broker: Broker) -> None:
        answer = client.receive(broker.log(), 1, filters=selector("n = = 3"))
        assert answer.error, answer.told
        assert answer.error["scope"] == "link" and not answer.all("message")

    def test_draining_an_empty_log_gives_the_credit_back(self, client: Client, broker: Broker) -> None:
        assert client.run("receive", broker.log(), drain=True, credit=10).one("drained")["received"] == 0

    def test_an_unknown_address_is_refused(self, client: Client) -> None:
        for operation in ("send", "receive"):
            answer = client.run(operation, "nowhere")
            assert answer.error, answer.told
            assert answer.error["condition"] == "amqp:not-found", answer.told

    def test_an_anonymous_terminus_sends_where_a_message_says(self, client: Client, broker: Broker) -> None:
        one, other = broker.log(), broker.log()
        answer = client.send(None, data("a", properties={"to": one}), data("b", properties={"to": other}))
        assert answer.one("sent").get("accepted") == 2, answer.told
        assert [[event.data for event in stored(broker, log)] for log in (one, other)] == [[b"a"], [b"b"]]

    def test_information_on_a_log_is_read_as_a_message(self, client: Client, broker: Broker) -> None:
        log = broker.log(partitions=3)
        client.send(log, data("m"))
        value = client.receive(f"{log}/$info", 1).messages[0]["value"]
        assert [entry["partition"] for entry in value["partitions"]] == ["0", "1", "2"]
        assert all({"earliest-offset", "latest-offset"} <= entry.keys() for entry in value["partitions"])

    def test_heartbeats_keep_an_idle_connection_open(self, client: Client) -> None:
        answer = client.run("connect", idle_timeout_ms=HEARTBEAT_MS, hold_s=HOLD_S)
        assert answer.one("opened") and answer.error is None, answer.told

    def test_a_broken_connection_costs_nobody_else(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        with client.start("receive", log, count=5) as doomed, client.start("receive", log, count=1) as other:
            doomed.wait_for("attached")
            other.wait_for("attached")
            doomed.kill()
            client.send(log, data("m"))
            assert texts(other.end().messages) == ["m"]


class Security:
    """TLS and SASL; the class for one client derives from it too."""

    def test_the_right_password_gets_in_over_tls(self, stranger: Client, certificates: Certificates) -> None:
        ca = str(certificates.certificate)
        answer = stranger.send("private", data("m"), ca=ca, user=USER, password=PASSWORD)
        assert answer.one("sent").get("accepted") == 1, answer.told

    def test_a_wrong_password_does_not(self, stranger: Client, certificates: Certificates) -> None:
        ca = str(certificates.certificate)
        answer = stranger.run("connect", ca=ca, user=USER, password="battery staple")
        assert answer.error and answer.error["scope"] == "sasl", answer.told
        assert not answer.all("opened")

    def test_nobody_gets_in_without_credentials(self, stranger: Client, certificates: Certificates) -> None:
        answer = stranger.send("private", data("m"), ca=str(certificates.certificate))
        assert answer.error and not answer.all("sent"), answer.told

    def test_a_server_that_the_authority_did_not_sign_is_refused(
        self, stranger: Client, certificates: Certificates
    ) -> None:
        answer = stranger.run("connect", ca=str(certificates.stranger), user=USER, password=PASSWORD)
        assert answer.error and answer.error["scope"] == "tls", answer.told
