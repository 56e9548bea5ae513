"""The corpus of odd events, and random messages that are taken, as what a client reads."""

from __future__ import annotations

from itertools import islice
from typing import ClassVar, Final

import pytest

from headwater.client import connect
from headwater.core import Encoding, Event
from headwater.core.message.validity import message_fault

from ..amqp.random_messages import random_messages
from ..night import night
from ..seeds import seed
from ..server.corpus.entries import TAKEN, Entry
from .driving import Client
from .serving import Broker

PART: Final = 10_000
PARTS: Final = 6
"""So many random messages are in one log, and so many logs: other ones for each commit."""


class OddEvents:
    """By night; a class for one client derives from it."""

    LACKS: ClassVar[dict[str, str]] = {}
    """Messages that this client does not read, and what it says as its link ends: nothing, if it passes them over."""

    @night
    def test_a_log_of_odd_events_is_read_to_its_end(self, client: Client, broker: Broker) -> None:
        given = [entry for entry in TAKEN if not is_any(entry, *self.LACKS)]
        answer = client.receive(f"{filled(broker, given)}/$earliest", len(given))
        assert not answer.error, answer.told
        assert answer.one("received")["count"] == len(answer.messages) == len(given)


class RandomMessages:
    """By night; a class for one client derives from it."""

    LACKING: ClassVar[frozenset[int]] = frozenset()
    """The constructors of types that this client lacks."""

    @staticmethod
    def reads(message: bytes) -> bool:
        """Whether this client reads a message that is taken, and has no types that it lacks."""
        return True

    @night
    @pytest.mark.parametrize("part", range(PARTS))
    def test_a_log_of_random_messages_is_read_to_its_end(self, client: Client, broker: Broker, part: int) -> None:
        given = random_messages(f"{seed()} {part}", self.LACKING)
        taken = (message for message in given if message_fault(b"", message, True) is None)
        messages = list(islice(filter(self.reads, taken), PART))
        log = broker.log()
        with connect(broker.url) as server:
            server.log(log).append([Event("odd", message, encoding=Encoding.AMQP) for message in messages])
        answer = client.receive(f"{log}/$earliest", PART, quiet=True)
        assert not answer.error, answer.told
        assert answer.one("received")["count"] == PART


def filled(broker: Broker, entries: list[Entry]) -> str:
    """A new log that has them."""
    log = broker.log()
    with connect(broker.url) as server:
        server.log(log).append([entry.event for entry in entries])
    return log


def is_any(entry: Entry, *messages: str) -> bool:
    """Whether it is one of these messages, in any form."""
    return entry.name.startswith(tuple(f"message: {message}, " for message in messages))
