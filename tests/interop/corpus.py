"""The corpus of odd events, as what a client reads."""

from __future__ import annotations

from typing import ClassVar

from headwater.client import connect

from ..night import night
from ..server.corpus.entries import TAKEN, Entry
from .driving import Client
from .serving import Broker


class OddEvents:
    """By night; a class for one client derives from it."""

    ENDS_THE_LINK: ClassVar[tuple[str, ...]] = ()
    """Messages that are AMQP, and that this client cannot decode: it gives up its link. They are left out."""
    PASSED_OVER: ClassVar[tuple[str, ...]] = ()
    """Messages that this client cannot decode, and leaves out itself: it goes on after them."""

    @night
    def test_a_log_of_odd_events_is_read_to_its_end(self, client: Client, broker: Broker) -> None:
        log = broker.log()
        given = [entry for entry in TAKEN if not _is_one(entry, self.ENDS_THE_LINK)]
        with connect(broker.url) as server:
            server.log(log).append([entry.event for entry in given])
        count = sum(not _is_one(entry, self.PASSED_OVER) for entry in given)
        answer = client.receive(f"{log}/$earliest", count, quiet=True)
        assert not answer.error, answer.told
        assert answer.one("received")["count"] == count


def _is_one(entry: Entry, messages: tuple[str, ...]) -> bool:
    return entry.name.startswith(tuple(f"message: {message}, " for message in messages))
