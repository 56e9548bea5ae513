"""Every case, written by each protocol, read by all: the same event, but for what docs/reference/mapping.md names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from headwater.amqp.protocol.message import encode_message
from tests.amqp.asking import OFFSET, annotation

from .cases import AMQP_CASES, CASES, Case
from .comparing import differences, without_made_up
from .mapping import READER_ROWS, WRITER_ROWS, Told, rows_of, shown, stored
from .readers import READERS, Reader
from .readers import Amqp as AmqpReader
from .seen import Seen
from .world import World
from .writers import WRITERS
from .writers import Amqp as AmqpWriter

pytestmark = pytest.mark.timeout(180)

BY_NAME = {case.name: case for case in (*CASES, *AMQP_CASES)}


def cases_of(writer: str) -> Sequence[Case]:
    """What it writes."""
    return (*CASES, *AMQP_CASES) if writer == "amqp" else CASES


ALL = [(writer.name, case.name) for writer in WRITERS for case in cases_of(writer.name)]
ACCEPTED = [pair for pair in ALL if stored(BY_NAME[pair[1]], pair[0]) is not None]

Read = Mapping[str, list[Seen]]


@pytest.fixture(scope="module")
def read(written: World) -> Read:
    """What each reader saw."""
    return {reader.name: list(reader.read(written)) for reader in READERS}


@pytest.mark.parametrize("writer", [writer.name for writer in WRITERS])
def test_log_has_what_the_writer_said(written: World, writer: str) -> None:
    wrong = []
    for case in cases_of(writer):
        name, expected = f"{case.name} of {writer}", stored(case, writer)
        refusal = written.refused.get((writer, case.name))
        if expected is None or refusal is not None:
            wrong += [f"{name}: refused: {refusal}"] if expected is not None else []
            wrong += [f"{name}: was not refused"] if refusal is None else []
            continue
        event = written.events[written.written[writer, case.name]]
        expected = expected._replace(envelope=event.envelope if writer == "amqp" else b"")
        wrong += differences(name, without_made_up(event.event, expected), expected)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("reader", [reader.name for reader in READERS])
def test_reader_sees_what_the_log_has(written: World, read: Read, reader: str) -> None:
    """Of each case from each writer: fields of an event, and whether it comes."""
    found = {seen.number: seen for seen in read[reader]}
    wrong = []
    for writer, case in ACCEPTED:
        number = written.written[writer, case]
        expected = shown(reader, Told(written.events[number], BY_NAME[case], writer))
        wrong += differences(f"{case} of {writer} to {reader}", found.get(number), expected)
    assert not wrong, "\n".join(wrong)


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
