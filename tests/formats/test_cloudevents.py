"""CloudEvents and events: the mapping both ways, and the JSON format byte for byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.core import Encoding, Event, SequencedEvent
from headwater.core.errors import InvalidEvent, InvalidInput
from headwater.core.limits import SEQUENCE_NUMBER_MAX
from headwater.formats import cloudevents as ce
from headwater.formats.files.cloudevent_lines import exported_line, taken_back
from tests.odd_tags import ODD_TAGS

BASE = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


def stored(event: Event, number: int = 7) -> SequencedEvent:
    return SequencedEvent(number, 0, 0, *event)


def from_json(**members) -> Event:
    return ce.event_from_json(json.dumps(BASE | members).encode())


@pytest.mark.parametrize(("members", "data"), [
    ({"data": {"a": [1, None]}}, b'{"a": [1, null]}'),
    ({"data": "text"}, b'"text"'),
    ({"data": "text", "datacontenttype": "application/json"}, b'"text"'),
    ({"data": "<a/>", "datacontenttype": "application/xml"}, b"<a/>"),
    ({"data": 5, "datacontenttype": "text/plain"}, b"5"),
    ({"data": {"a": 1}, "datacontenttype": "application/vnd.x+json; v=1"}, b'{"a": 1}'),
    ({"data_base64": "AP8="}, b"\0\xff"),
    ({"data": None}, b"null"),
    ({}, b""),
])  # fmt: skip
def test_data_is_kept_as_it_was_written(members, data):
    assert from_json(**members).data == data


@pytest.mark.parametrize("event", [
    Event("t", b'{"a": 1}', (), "1", "/s"),
    Event("t", b'"text"', ("a:1", "b:x,y", "c:100%"), "1", "/s", {"subject": "x"}, "group"),
    Event("t", b"<a/>", (), "1", "/s", {"datacontenttype": "application/xml"}),
    Event("t", b"\0\xff", (), "1", "/s", {"datacontenttype": "text/plain"}),
    Event("t", b"not json", (), "1", "/s", {"datacontenttype": "application/json"}),
    Event("t", b'"\xff"', (), "1", "/s"),
    Event("t", b"", (), "1", "/s"),
])  # fmt: skip
def test_event_survives_the_json_format(event):
    found = ce.event_from_json(ce.event_to_json(stored(event), "/other"))
    attributes = {name: value for name, value in found.attributes.items() if name not in ("time", "sequence")}
    assert found._replace(attributes=attributes) == event._replace(attributes=dict(event.attributes))


def test_sequence_and_time_are_the_logs_where_the_producer_gave_none():
    event = Event("t", b"", (), "1")
    found = ce.attributes_from_event(SequencedEvent(42, 1_500, 0, *event), "/logs/x")
    assert found == {
        "specversion": "1.0", "id": "1", "source": "/logs/x", "type": "t", "time": "1970-01-01T00:00:01.500Z",
        "sequence": "000000000000000042",
    }  # fmt: skip
    event = Event("t", b"", (), "1", "/s", {"time": "2026-01-01T00:00:00+01:00"})
    assert ce.attributes_from_event(stored(event), "/")["time"] == "2026-01-01T00:00:00+01:00"


def test_sequence_is_in_the_order_of_the_log_as_text_too():
    numbers = [1, 9, 10, 99, 100, 2**53, SEQUENCE_NUMBER_MAX]
    texts = [ce.format_sequence(number) for number in numbers]
    assert sorted(texts) == texts and {len(text) for text in texts} == {18}
    assert [int(text) for text in texts] == numbers


def test_amqp_message_goes_out_as_bytes():
    event = Event("t", b"\0SpE", (), "1", "/s", encoding=Encoding.AMQP)
    assert json.loads(ce.event_to_json(stored(event), "/"))["data_base64"] == "AFNwRQ=="


def test_attributes_have_their_canonical_form():
    found = from_json(number=5, yes=True, no=False, absent=None)
    assert found.attributes == {"number": "5", "yes": "true", "no": "false"}


def test_header_values_are_unquoted_and_percent_decoded_once():
    headers = [(b"ce-specversion", b"1.0"), (b"ce-id", b"%2541"), (b"ce-source", b"/s"), (b"ce-type", b"t"),
               (b"ce-subject", b'"a \\"b\\" %E2%82%AC"'), (b"content-type", b"text/plain")]  # fmt: skip
    found = ce.event_from_headers(headers, b"\xff")
    assert (found.id, found.data) == ("%41", b"\xff")
    assert found.attributes == {"subject": 'a "b" €', "datacontenttype": "text/plain"}


@pytest.mark.parametrize(
    "time", ["2026-02-03", "2026-02-03T04:05:06", "2026-13-03T04:05:06Z", "2026-02-03 04:05:06Z", "x"]
)
def test_time_must_be_rfc3339(time):
    with pytest.raises(InvalidEvent, match="RFC 3339") as caught:
        from_json(time=time)
    assert caught.value.where == "time"


@given(st.lists(st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1), max_size=5))
@example(list(ODD_TAGS))
def test_tags_survive_their_attribute(tags):
    assert list(ce.decode_tags(ce.encode_tags(tags))) == tags


def test_tags_are_escaped_only_where_that_takes_it():
    assert ce.encode_tags(["a:1", "order/17", "two words ", "\u00fc"]) == "a:1,order/17,two words ,\u00fc"
    assert ce.encode_tags([" a, b", "100%", "\uffff\U0010fffe"]) == "%20a%2C b,100%25,%EF%BF%BF%F4%8F%BF%BE"


@pytest.mark.parametrize("tag", ["a%FFb", "a%FEb", "%E4", "%C3,%BC"])
def test_a_tag_that_percent_decodes_to_no_utf8_is_refused(tag):
    with pytest.raises(InvalidEvent, match=r"tags: '.*' does not percent-decode to UTF-8"):
        ce.decode_tags(f"x:1,{tag}")


def test_white_space_after_a_comma_is_no_part_of_a_tag():
    assert ce.decode_tags("a:1, b:2,\t c ,%20d") == ("a:1", "b:2", "c ", " d")


@given(st.binary(max_size=200))
def test_any_bytes_give_events_or_a_documented_error(text):
    for decode in (ce.event_from_json, ce.events_from_json_batch):
        try:
            decode(text)
        except InvalidInput as error:
            assert str(error)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
))  # fmt: skip
def test_any_json_gives_an_event_or_a_documented_error(value):
    members = BASE | (value if isinstance(value, dict) else {"data": value})
    try:
        assert ce.event_from_json(json.dumps(members).encode()).source
    except InvalidInput as error:
        assert str(error)


def test_document_that_came_as_amqp_message_is_unpacked():
    document = (
        b'{"specversion":"1.0","id":"1","source":"/s","type":"t","datacontenttype":"text/plain","data":"hello",'
        b'"subject":"x"}'
    )
    attributes = {"subject": "x", "datacontenttype": "application/cloudevents+json; charset=utf-8"}
    event = Event("t", document, ("a:1",), "1", "/s", attributes, envelope=b"\0Su\xa0\x70")
    shown = json.loads(ce.event_to_json(stored(event), "/other"))
    assert shown == {
        "specversion": "1.0", "id": "1", "source": "/s", "type": "t", "time": "1970-01-01T00:00:00.000Z",
        "datacontenttype": "text/plain", "data": "hello", "subject": "x", "tags": "a:1",
        "sequence": "000000000000000007",
    }  # fmt: skip
    of_another_origin = json.loads(ce.event_to_json(stored(event._replace(envelope=b"")), "/other"))
    assert of_another_origin["data"] == json.loads(document)


MEMBERS = '"specversion":"1.0","id":"1","source":"/s","type":"t"'
NO_DOCUMENTS = [
    "{", "[1]", "{}", '{"data":1,"datacontenttype":"text/plain"}', f'{{{MEMBERS},"time":"now"}}',
    f'{{{MEMBERS},"datacontenttype":7,"data":1}}', f'{{{MEMBERS},"datacontenttype":true,"data":1}}',
    f'{{{MEMBERS},"datacontenttype":{{"a":[1]}},"data":1}}', f'{{{MEMBERS},"datacontenttype":[],"data":1}}',
    f'{{{MEMBERS},"datacontenttype":"","data":1}}', f'{{{MEMBERS},"datacontenttype":"a\\u0000b","data":1}}',
    f'{{{MEMBERS},"data":1,"data_base64":"AA=="}}', f'{{{MEMBERS},"data_base64":"%%"}}',
    f'{{{MEMBERS},"data_base64":12}}',
    f'{{{MEMBERS},"data_base64":null}}', f'{{{MEMBERS},"subject":5}}', MEMBERS.replace('"1.0"', "1").join("{}"),
]  # fmt: skip
"""What is no CloudEvent in the JSON format."""


@pytest.mark.parametrize("document", NO_DOCUMENTS)
def test_a_document_that_is_no_cloudevent_goes_out_whole_in_one_that_is(document):
    with pytest.raises(InvalidInput):
        ce.event_from_json(document.encode())
    attributes = {"datacontenttype": "application/cloudevents+json"}
    event = Event("t", document.encode(), (), "1", "/s", attributes, envelope=b"\0Su\xa0\x70")
    shown = ce.event_to_json(stored(event), "/other")
    members = json.loads(shown)
    assert members["datacontenttype"] == "application/cloudevents+json" and "data" not in members
    assert ce.event_from_json(shown).data == document.encode()
    line = exported_line(stored(event), "/other")
    assert taken_back(ce.event_from_json(line)) == event


def test_null_is_no_media_type_of_a_document():
    document = f'{{{MEMBERS},"datacontenttype":null,"data":1}}'.encode()
    attributes = {"datacontenttype": "application/cloudevents+json"}
    shown = json.loads(ce.event_to_json(stored(Event("t", document, attributes=attributes, envelope=b"x")), "/other"))
    assert shown["data"] == 1 and "datacontenttype" not in shown


@pytest.mark.parametrize("name", ["id", "source", "type", "subject", "time", "dataschema", "datacontenttype"])
def test_what_cloudevents_defines_is_a_string(name):
    members = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
    for value in (7, True):
        with pytest.raises(InvalidEvent, match=f"{name}: expected a string, got {value}"):
            ce.event_from_json(json.dumps(members | {name: value}).encode())
    assert ce.event_from_json(json.dumps(members | {"mine": 7}).encode()).attributes == {"mine": "7"}


def test_message_whose_body_is_no_single_data_section_is_shown_whole_in_base64():
    event = Event("amqp.message", b"\0Sw\xa1\x02hi", attributes={"datacontenttype": "application/amqp"},
                  encoding=Encoding.AMQP)  # fmt: skip
    shown = json.loads(ce.event_to_json(stored(event), "/other"))
    assert shown["data_base64"] == "AFN3oQJoaQ=="
    assert shown["datacontenttype"] == "application/amqp"
