"""Qpid JMS: what the JMS interface reaches; no link properties, no described filters but the selector."""

from __future__ import annotations

from ..night import night
from .basics import Basics, Security
from .corpus import OddEvents
from .driving import Client, data, texts
from .extensions import Refusals
from .filters import selector
from .groups import GroupsByAddress
from .management import Hearing
from .runtimes import Jms
from .serving import Broker


class TestJms(Hearing, Refusals, OddEvents, Basics, Security):
    """See the classes that it derives from."""

    RUNTIME = Jms

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
