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

    LACKS: ClassVar[dict[str, str]] = {}
    """Messages that have a value of a type that this client lacks, and what it says as its link ends."""

    @night
    def test_a_log_of_odd_events_is_read_to_its_end(self, client: Client, broker: Broker) -> None:
        given = [entry for entry in TAKEN if not is_any(entry, *self.LACKS)]
        answer = client.receive(f"{filled(broker, given)}/$earliest", len(given))
        assert not answer.error, answer.told
        assert answer.one("received")["count"] == len(answer.messages) == len(given)


def filled(broker: Broker, entries: list[Entry]) -> str:
    """A new log that has them."""
    log = broker.log()
    with connect(broker.url) as server:
        server.log(log).append([entry.event for entry in entries])
    return log


def is_any(entry: Entry, *messages: str) -> bool:
    """Whether it is one of these messages, in any form."""
    return entry.name.startswith(tuple(f"message: {message}, " for message in messages))
