"""Azure's go-amqp: everything but what it does not show (the peer's capabilities)."""

from __future__ import annotations

from typing import ClassVar

from ..amqp.random_messages import CHAR, DECIMALS
from ..night import night
from ..server.corpus.entries import TAKEN
from .basics import Basics, Security
from .corpus import OddEvents, RandomMessages, filled, is_any
from .driving import Client
from .extensions import Extensions, SecondSettling
from .groups import GroupsByAddress
from .management import Hearing
from .runtimes import GoAmqp
from .serving import Broker


class TestGoAmqp(GroupsByAddress, Extensions, SecondSettling, Hearing, OddEvents, RandomMessages, Basics, Security):
    """See the classes that it derives from."""

    RUNTIME = GoAmqp
    LACKS: ClassVar = {"char": "char not implemented", "decimal": "decimal64 not implemented"}
    LACKING = frozenset((CHAR, *DECIMALS))

    @night
    def test_a_type_that_it_lacks_ends_its_link(self, client: Client, broker: Broker) -> None:
        for message, said in self.LACKS.items():
            given = [entry for entry in TAKEN if is_any(entry, message)]
            answer = client.receive(f"{filled(broker, given)}/$earliest", len(given))
            assert answer.error and said in answer.error["description"], answer.told
