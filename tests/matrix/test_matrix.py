"""Every case, written by each protocol, read by all: the same event, but for what docs/reference/mapping.md names."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping

import pytest

from headwater.amqp.protocol.message import encode_message
from headwater.core.event import Event
from tests.amqp.asking import OFFSET, annotation

from .cases import AMQP_CASES, CASES
from .mapping import MADE, READER_ROWS, WRITER_ROWS, Told, rows_of, shown, stored
from .readers import READERS, Reader
from .readers import Amqp as AmqpReader
from .seen import Seen
from .world import World
from .writers import WRITERS
from .writers import Amqp as AmqpWriter

pytestmark = pytest.mark.timeout(180)

BY_NAME = {case.name: case for case in (*CASES, *AMQP_CASES)}
ALL = [
    (writer.name, case.name) for writer in WRITERS for case in (*CASES, *(AMQP_CASES if writer.name == "amqp" else ()))
]
ACCEPTED = [pair for pair in ALL if stored(BY_NAME[pair[1]], pair[0]) is not None]

Read = Mapping[str, list[Seen]]


@pytest.fixture(scope="module")
def read(written: World) -> Read:
    """What each reader saw."""
    return {reader.name: list(reader.read(written)) for reader in READERS}


@pytest.mark.parametrize(("writer", "case"), ALL, ids=map("-".join, ALL))
def test_log_has_what_the_writer_said(written: World, writer: str, case: str) -> None:
    expected = stored(BY_NAME[case], writer)
    if expected is None:
        assert (writer, case) in written.refused
        return
    assert (writer, case) not in written.refused, written.refused[writer, case]
    event = written.events[written.written[writer, case]]
    assert without_made_up(event.event, expected) == expected._replace(envelope=event.envelope)
    if writer != "amqp":
        assert event.envelope == b""


@pytest.mark.parametrize("reader", [reader.name for reader in READERS])
@pytest.mark.parametrize(("writer", "case"), ACCEPTED, ids=map("-".join, ACCEPTED))
def test_reader_sees_what_the_log_has(written: World, read: Read, writer: str, case: str, reader: str) -> None:
    number = written.written[writer, case]
    told = Told(written.events[number], BY_NAME[case], writer)
    expected = shown(reader, told)
    found = [seen for seen in read[reader] if seen.number == number]
    if expected is None:
        assert not found
        return
    [seen] = found
    assert seen._replace(data=b"") == expected._replace(data=b"")
    if expected.data == b"{too_large}":
        assert json.loads(seen.data)["too_large"]["bytes"] == len(told.event.data)
    else:
        assert seen.data == expected.data


@pytest.mark.parametrize("reader", [reader.name for reader in READERS])
def test_reader_sees_each_event_once_and_in_the_order_of_the_log(written: World, read: Read, reader: str) -> None:
    numbers = [seen.number for seen in read[reader]]
    assert numbers == sorted(set(numbers))
    told = {
        written.written[pair]: Told(written.events[written.written[pair]], BY_NAME[pair[1]], pair[0])
        for pair in ACCEPTED
    }
    assert numbers == [number for number in sorted(told) if shown(reader, told[number]) is not None]


def test_amqp_message_comes_back_as_it_was_sent(written: World) -> None:
    """To the byte: header, annotations, properties, body and footer."""
    amqp = next(writer for writer in WRITERS if isinstance(writer, AmqpWriter))
    received = {int(annotation(each, OFFSET)): each.message for each in AmqpReader().deliveries(written)}
    for writer, case in ACCEPTED:
        if writer == "amqp":
            message = received[written.written[writer, case]]
            message.delivery_annotations = None
            assert encode_message(message) == encode_message(amqp.message(BY_NAME[case])), case


def test_every_choice_concerns_some_case(written: World) -> None:
    readers: list[Reader] = list(READERS)
    concerned = {
        row.title for row in WRITER_ROWS for writer, case in ALL if writer in row.writers and row.applies(BY_NAME[case])
    }
    for pair in ACCEPTED:
        told = Told(written.events[written.written[pair]], BY_NAME[pair[1]], pair[0])
        concerned |= {title for reader in readers for title in rows_of(reader.name, told)}
    assert concerned == {row.title for row in (*WRITER_ROWS, *READER_ROWS)}


def without_made_up(found: Event, expected: Event) -> Event:
    """The event with `MADE` in place of an id that the log made, and PUBLISHER in place of a publisher's id."""
    if expected.id == MADE:
        assert uuid.UUID(found.id).version == 7
        found = found._replace(id=MADE)
    if publisher := found.attributes.get("cnepublisher"):
        attributes = {**found.attributes, "cnepublisher": "PUBLISHER"}
        found = found._replace(data=found.data.replace(publisher.encode(), b"PUBLISHER"), attributes=attributes)
    if "cnestamped" in found.attributes:
        found = found._replace(attributes={**found.attributes, "time": MADE})
    return found
