import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import Encoding, Event, SequencedEvent
from headwater.core.errors import InvalidInput
from headwater.formats.envelope import decode_event, encode_event, ndjson_events

events = st.builds(
    Event,
    type=st.just("A"),
    data=st.binary(max_size=20) | st.text(max_size=20).map(str.encode),
    tags=st.lists(st.sampled_from(["a:1", "b"]), unique=True).map(sorted).map(tuple),
    id=st.just("x"),
    source=st.sampled_from(["", "shop"]),
    attributes=st.sampled_from([{}, {"time": "now"}]),
    group_key=st.sampled_from(["", "g"]),
    envelope=st.binary(max_size=3),
    encoding=st.sampled_from(Encoding),
)


@given(events)
def test_a_stored_event_survives_its_envelope(event: Event) -> None:
    stored = SequencedEvent(7, 8, 1, *event)
    assert decode_event(encode_event(stored)) == stored


@given(events)
def test_a_line_that_was_exported_is_imported_as_the_same_event(event: Event) -> None:
    line = encode_event(SequencedEvent(7, 8, 1, *event))
    assert list(ndjson_events([line], "file")) == [event]


def test_a_line_may_be_the_event_alone() -> None:
    line = b'{"type":"A","data":"{}","tags":["a:1"],"id":"7","source":"shop"}\n'
    assert list(ndjson_events([line], "file")) == [Event("A", b"{}", ("a:1",), "7", "shop")]


def test_an_event_whose_type_is_called_event_is_no_envelope() -> None:
    (event,) = ndjson_events([b'{"type":"event","data":"\\"event\\""}'], "file")
    assert event.type == "event"


def test_ids_that_are_missing_are_derived_from_source_and_line() -> None:
    lines = [b'{"type":"A"}', b"", b'{"type":"A"}', b'{"type":"A","source":"shop"}']
    first = list(ndjson_events(lines, "file"))
    assert first == list(ndjson_events(lines, "file"))
    assert len({event.id for event in first}) == 3
    assert [event.source for event in first] == ["file", "file", "shop"]


def test_without_a_source_missing_ids_stay_missing() -> None:
    (event,) = ndjson_events([b'{"type":"A"}'])
    assert (event.id, event.source) == ("", "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 2: "),
        (b'{"type":1}', r"line 2: Expected `str`, got `int` - at `\$.type`"),
        (b'{"typ":"A"}', "line 2: Object contains unknown field `typ`"),
        (b'{"type":"A","data":"","data_base64":""}', "line 2: give `data` or `data_base64`, not both"),
        (b'{"type":"A","encoding":"gzip"}', "line 2: encoding: expected data or amqp, got 'gzip'"),
        (b'{"event":{"type":1},"sequence_number":1,"recorded_at":1}', r"line 2: .* `\$.event.type`"),
        (b'{"type":"\xff"}', "line 2: "),
    ],
)
def test_what_is_wrong_is_said_with_its_line(line: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        list(ndjson_events([json.dumps({"type": "A"}).encode(), line], "file"))


@pytest.mark.parametrize("data", [b'{"total": 30.50,  "lines": [1]}', b"[1, 2]", b"30", b"true"])
def test_data_that_is_json_and_no_string_is_taken_as_it_stands(data: bytes) -> None:
    event = b'{"type": "OrderPlaced", "data": %b}' % data
    for line in (event, b'{"event": %b, "sequence_number": 3}' % event):
        assert [each.data for each in ndjson_events([line])] == [data]


def test_half_of_a_surrogate_pair_in_a_line_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"line 1: a string contains half of a surrogate pair, \\ud800"):
        list(ndjson_events([b'{"type":"\\ud800"}']))


def test_data_that_is_null_says_neither_nothing_nor_null() -> None:
    with pytest.raises(InvalidInput, match="line 1: Expected `str`, got `null`"):
        list(ndjson_events([b'{"type": "OrderPlaced", "data": null}']))
