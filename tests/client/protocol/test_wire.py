import msgspec

from headwater.client.protocol import wire
from headwater.core import AppendCondition, Event, Query
from headwater.core.limits import check_append
from headwater.core.settings import LogSettings


def body(condition: AppendCondition | None = None, partition: int | None = None) -> dict:
    return msgspec.msgpack.decode(
        wire.append_body(check_append([Event("A")], LogSettings().event_bytes_max), condition, partition)
    )


def test_without_condition_none_is_said() -> None:
    assert body().keys() == {"events"}


def test_a_condition_is_said_in_todays_form() -> None:
    said = body(AppendCondition(Query.where(types=["A"], tags=["x:1"]), 5), 2)
    assert said["condition"] == {"failIfEventsMatch": {"items": [{"types": ["A"], "tags": ["x:1"]}]}, "after": 5}
    assert said["partition"] == 2
    assert "strict" not in said


def test_a_condition_that_needs_a_match_is_said_in_the_first_drafts_form_without_its_rules() -> None:
    said = body(AppendCondition(Query.where(tags=["x"]), 5, requires_match=True))
    assert said["condition"] == {"query": {"items": [{"tags": ["x"]}]}, "expected_highest_sequence_number": 5}
    assert said["strict"] is False


def test_every_event_is_said_explicitly() -> None:
    assert wire.query_json(Query.all()) == {"all": True}
