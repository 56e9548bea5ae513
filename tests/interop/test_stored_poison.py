"""What earlier versions took, and clients did not survive: each real one gets stubs and all the rest, and stays."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.storage import Engine

from ..night import night
from ..server.test_stored_poison import STORED, append_unchecked, check_data
from .driving import Client, data
from .install import unavailable
from .runtimes import GoAmqp, Jms, Proton, Rhea, Runtime
from .serving import Broker

pytestmark = night
AGED = "aged"
PREFIX = "ID:AMQP_NO_PREFIX:"
"""Of ids in JMS that no program of JMS gave."""


@pytest.fixture
def aged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A server with a log that nobody checked."""
    directory = tmp_path_factory.mktemp("aged")
    with Engine(directory / "data", maintains=False) as engine:
        log = engine.create(AGED)
        for event in STORED:
            append_unchecked(log, [event])
    with Broker(directory) as broker:
        yield broker


@pytest.mark.parametrize("kind", [Proton, Rhea, Jms, GoAmqp])
def test_a_client_gets_stubs_and_all_the_rest_in_order(kind: type[Runtime], aged: Broker) -> None:
    runtime = kind()
    if reason := runtime.missing():
        unavailable(reason)
    client = Client(runtime, aged.amqp)
    with client.start("receive", f"{AGED}/$earliest", count=len(STORED) + 1, credit=10) as receiver:
        for _ in STORED:
            receiver.wait_for("message")
        client.send(AGED, data("live"))
        answer = receiver.end()
    assert not answer.error, answer.told
    *old, live = answer.messages
    assert [_id(message) for message in old] == [event.id for event in STORED]
    for message in old:
        check_data(_id(message), _content(message))
    assert _content(live) == b"live"


def _id(message: dict[str, Any]) -> str:
    return str(message["properties"]["message_id"]).removeprefix(PREFIX)


def _content(message: dict[str, Any]) -> bytes:
    """The data; JMS has that of text as text."""
    return base64.b64decode(message["data"]) if "data" in message else str(message["value"]).encode()
