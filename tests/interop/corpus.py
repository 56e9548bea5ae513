"""The corpus of odd events, as what a client reads."""

from __future__ import annotations

from headwater.client import connect

from ..night import night
from ..server.corpus.entries import TAKEN
from .driving import Client
from .serving import Broker


class OddEvents:
    """By night; a class for one client derives from it."""

    @night
    def test_a_log_of_odd_events_is_read_to_its_end(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        with connect(broker.url) as server:
            server.log(log).append([entry.event for entry in TAKEN])
        answer = client.receive(f"{log}/$earliest", len(TAKEN), quiet=True)
        assert not answer.error, answer.told[-2000:]
        assert answer.one("received")["count"] == len(TAKEN)
