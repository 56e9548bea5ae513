"""Vert.x, whose receivers name an address and cannot set a link property."""

from __future__ import annotations

from ..night import night
from .basics import stored
from .driving import Client, data, texts
from .groups import GroupsByAddress
from .runtimes import VertX
from .serving import Broker


class TestVertX:
    """One message there, and back through a consumer group."""

    RUNTIME = VertX

    def test_a_message_is_sent_and_received_through_a_group(self, client: Client, broker: Broker) -> None:
        log = broker.log(partitions=2)
        with client.start("receive", f"{log}/$group/billing", count=1) as receiver:
            receiver.wait_for("attached")
            assert client.send(log, data("m")).one("sent").get("accepted") == 1
            assert texts(receiver.end().messages) == ["m"]
        assert [event.data for event in stored(broker, log)] == [b"m"]


@night
class TestVertXInGroups(GroupsByAddress):
    """See the class that it derives from."""

    RUNTIME = VertX
