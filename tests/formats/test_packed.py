from itertools import count

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import Encoding, Event, SequencedEvent
from headwater.core.errors import InvalidInput
from headwater.core.limits import check_append
from headwater.core.settings import LogSettings
from headwater.formats import packed
from tests.strategies import stored_events

_appended = msgspec.msgpack.Decoder(list[Event])


@given(st.lists(st.lists(stored_events, min_size=1, max_size=3), max_size=3), st.integers(1, 40))
def test_pages_survive_however_they_are_cut(pages: list[list[SequencedEvent]], piece_bytes: int) -> None:
    numbers = count(1)
    pages = [[each._replace(sequence_number=next(numbers)) for each in page] for page in pages]
    stream = b"".join(map(packed.encode_page, pages))
    parser = packed.PageParser()
    found = []
    for at in range(0, len(stream), piece_bytes):
        found += parser.receive_data(stream[at : at + piece_bytes])
    assert found == [event for page in pages for event in page]
    assert parser.is_between_pages


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65535, 65536])
def test_events_that_are_packed_one_by_one_make_the_same_page(count: int) -> None:
    events = [SequencedEvent(number % 100, 2, 0, *Event("A")) for number in range(count)]
    found = packed.PackedEvents()
    found.extend(events[: count // 2])
    found.extend(events[count // 2 :])
    assert (len(found), packed.encode_page(found)) == (count, packed.encode_page(events))


def test_events_that_are_packed_are_decoded_for_whoever_looks() -> None:
    events = [SequencedEvent(number, 2, 0, *Event("A", tags=("n:1",))) for number in range(5)]
    found = packed.PackedEvents()
    assert not found
    found.extend(events)
    assert (list(found), found[1:], found[-1], found.index(events[2])) == (events, events[1:], events[-1], 2)


def test_a_page_that_is_cut_is_not_whole() -> None:
    parser = packed.PageParser()
    page = packed.encode_page([SequencedEvent(1, 2, 0, *Event("A"))])
    assert parser.receive_data(page + page[:-1]) == [SequencedEvent(1, 2, 0, *Event("A"))]
    assert not parser.is_between_pages


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"<html>", "expected the byte 0xc6 at the start of a page, got 0x3c"),
        (b"\xc6\0\0\0\1\xc1", "malformed MessagePack"),
        (b"\xc6\0\0\0\2\x91\xa0", "expected `array`, got `str`"),
    ],
)
def test_what_is_no_page_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        packed.PageParser().receive_data(content)


@given(st.lists(stored_events, min_size=1, max_size=3, unique_by=lambda event: event.id))
def test_events_to_append_survive(stored: list[SequencedEvent]) -> None:
    events = [event.event for event in stored]
    rows = packed.event_rows(check_append(events, LogSettings().event_bytes_max))
    assert packed.decode(_appended, packed.encode(rows)) == events


def test_fields_without_content_are_left_out_of_an_append() -> None:
    events = [Event("A", b"x", ("a:1",), "1"), Event("B", id="2")]
    assert packed.event_rows(check_append(events, LogSettings().event_bytes_max)) == [
        ("A", b"x", ("a:1",), "1"),
        ("B", b"", (), "2"),
    ]
    with_key = [events[0], events[1]._replace(group_key="k", data=b"\0Sw@", encoding=Encoding.AMQP)]
    assert [len(row) for row in packed.event_rows(check_append(with_key, LogSettings().event_bytes_max))] == [9, 9]


@pytest.mark.parametrize(
    ("events", "where"),
    [([["A", "text"]], "[0][1]"), ([["A"], [1]], "[1][0]"), ([["A", b"", [], "", "", {}, "", b"", 7]], "[0][8]")],
)
def test_an_event_that_does_not_fit_is_named(events: list, where: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        packed.decode(_appended, msgspec.msgpack.encode(events))
    assert caught.value.where == where


def test_a_key_that_is_no_string_is_placed() -> None:
    decoder = msgspec.msgpack.Decoder(list[SequencedEvent])
    event = (1, 1, 0, "A", b"", (), "1", "", {7: "x"}, "", b"", 0)
    with pytest.raises(InvalidInput) as caught:
        packed.decode(decoder, msgspec.msgpack.encode([event]))
    assert caught.value.where == "[0][8]"
    assert caught.value.problem == "expected `str`, got `int` as the key of an object"
