"""Qpid JMS: what the JMS interface reaches; no link properties, no described filters but the selector."""

from __future__ import annotations

from typing import Any, ClassVar

from headwater.amqp.protocol.message import decode_message
from headwater.amqp.protocol.types import Array, Described, Int
from headwater.client import connect
from headwater.core import Encoding, Event
from headwater.core.message.sections import SEQUENCE, VALUE

from ..amqp.streams.messages import value
from ..night import night
from ..server.corpus.entries import TAKEN
from .basics import Basics, Security
from .corpus import OddEvents, RandomMessages, filled, is_any
from .driving import Client, data, texts
from .extensions import Refusals
from .filters import selector
from .groups import GroupsByAddress
from .management import Hearing
from .runtimes import Jms
from .serving import Broker

JAVA_ARRAYS = frozenset((0x51, 0x54, 0x55, 0x56, 0x61, 0x71, 0x72, 0x81, 0x82))
"""Constructors of booleans, bytes, shorts, ints, longs, floats and doubles: arrays of primitive types in Java."""


class TestJms(Hearing, Refusals, OddEvents, RandomMessages, Basics, Security):
    """See the classes that it derives from.

    As a message comes in whose body is an amqp-value or a sequence, the client encodes that body again. Its library
    cannot encode an array of a primitive type of Java that is an entry of a list or map: the message is lost.
    """

    RUNTIME = Jms
    LACKS: ClassVar = {
        "list that has an array of longs": "",
        "map that has a list with an array of booleans": "",
        "sequence that has a map with an array of doubles": "",
    }

    @staticmethod
    def reads(message: bytes) -> bool:
        """Whether the body has no such array."""
        found = decode_message(message)
        return found.body_kind not in (SEQUENCE, VALUE) or not _has_java_array(found.body, is_entry=False)

    @night
    def test_a_message_with_an_array_of_numbers_in_a_list_or_map_is_passed_over(
        self, client: Client, broker: Broker
    ) -> None:
        for name in self.LACKS:
            given = [entry for entry in TAKEN if is_any(entry, "text", name, "null")]
            assert len(given) == 3
            answer = client.receive(f"{filled(broker, given)}/$earliest", len(given), quiet=True, drain=True)
            assert not answer.error and answer.one("drained")["received"] == 2, answer.told

    @night
    def test_one_of_ints_makes_the_same_consumer_pass_over_bodies_that_are_arrays_of_ints(
        self, client: Client, broker: Broker
    ) -> None:
        array, log = Array([Int(1)], 0x71), broker.log()
        for bodies, received in (([array, "x"], 2), ([[array], array, "x"], 1)):
            with connect(broker.url) as server:
                server.log(log).append([Event("odd", value(body), encoding=Encoding.AMQP) for body in bodies])
            answer = client.receive(f"{log}/$earliest", 3, quiet=True, drain=True)
            log = broker.log()
            assert not answer.error and answer.one("drained")["received"] == received, answer.told

    def test_a_durable_subscription_goes_on_until_it_is_unsubscribed(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        client.send(log, *(data(f"m{n}", application_properties={"n": n}) for n in range(6)))
        mine = {"subscription": f"sub-of-{log}", "container_id": f"client-of-{log}"}
        address, filters = f"{log}/$earliest", selector("n <> 1")
        first = client.receive(address, 2, filters=filters, credit=1, **mine)
        again = client.receive(address, 2, filters=filters, credit=1, **mine)
        assert [texts(answer.messages) for answer in (first, again)] == [["m0", "m2"], ["m3", "m4"]], again.told
        assert client.run("unsubscribe", **mine).one("unsubscribed")
        anew = client.receive(address, 2, filters=filters, credit=1, **mine)
        assert texts(anew.messages) == ["m0", "m2"], "it was not forgotten"

    def test_a_subscription_that_is_not_there_cannot_be_unsubscribed(self, client: Client) -> None:
        answer = client.run("unsubscribe", subscription="nobody's", container_id="stranger")
        assert answer.error and answer.error["condition"] == "amqp:not-found", answer.told

    def test_a_shared_subscription_is_refused_and_not_remembered(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        mine = {"subscription": f"shared-in-{log}", "container_id": f"client-of-{log}"}
        answer = client.receive(log, 1, shared=True, **mine)
        assert answer.error and answer.error["condition"] == "amqp:not-implemented", answer.told
        assert "consumer group" in answer.error["description"]
        gone = client.run("unsubscribe", **mine)
        assert gone.error and gone.error["condition"] == "amqp:not-found", gone.told

    def test_a_queue_shaped_client_reads_history(self, client: Client, broker: Broker) -> None:
        """By an address, where neither a filter nor a link property can be given."""
        log = broker.log()
        client.send(log, data("a"), data("b"))
        assert texts(client.receive(f"{log}/$earliest", 2).messages) == ["a", "b"]

    def test_a_browser_of_a_queue_sees_the_log(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        client.send(log, data("a"), data("b"))
        assert texts(client.run("browse", address=f"queue://{log}").messages) == ["a", "b"]


@night
class TestJmsInGroups(GroupsByAddress):
    """See the class that it derives from."""

    RUNTIME = Jms


def _has_java_array(value: Any, is_entry: bool) -> bool:
    if isinstance(value, Described):
        return _has_java_array(value.value, is_entry=False)
    if isinstance(value, Array) and is_entry and value.constructor in JAVA_ARRAYS:
        return True
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_has_java_array(entry, is_entry=True) for entry in entries)
