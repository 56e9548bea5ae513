import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headwater.client import wire
from headwater.core import AppendCondition, Encoding, Event, Query, SequencedEvent
from headwater.core.limits import check_append
from headwater.core.settings import LogSettings

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
    assert wire.decode_event(wire.encode_event(stored)) == stored
    assert wire.decode_events(wire.encode_event(stored) + b"\n") == [stored]


@given(events)
def test_a_producers_event_survives_the_append_body(event: Event) -> None:
    body = wire.append_body(check_append([event], LogSettings()), None, None)
    (sent,) = msgspec.json.decode(body)["events"]
    assert wire.producer_event(msgspec.json.decode(msgspec.json.encode(sent), type=wire.EventJson)) == event


def test_a_condition_is_said_in_todays_form() -> None:
    condition = AppendCondition(Query.where(types=["A"], tags=["x:1"]), 5)
    body = msgspec.json.decode(wire.append_body(check_append([Event("A")], LogSettings()), condition, 2))
    assert body["condition"] == {"failIfEventsMatch": {"items": [{"types": ["A"], "tags": ["x:1"]}]}, "after": 5}
    assert body["partition"] == 2


def test_a_condition_that_needs_a_match_is_said_in_the_first_drafts_form_without_its_rules() -> None:
    condition = AppendCondition(Query.where(tags=["x"]), 5, requires_match=True)
    body = msgspec.json.decode(wire.append_body(check_append([Event("A")], LogSettings()), condition, None))
    assert body["condition"] == {"query": {"items": [{"tags": ["x"]}]}, "expected_highest_sequence_number": 5}
    assert body["strict"] is False
