import msgspec

from headwater.client import wire
from headwater.core import AppendCondition, Event, Query
from headwater.core.limits import check_append
from headwater.core.settings import LogSettings


def body(condition: AppendCondition | None = None, partition: int | None = None) -> dict:
    return msgspec.json.decode(wire.append_body(check_append([Event("A")], LogSettings()), condition, partition))


def test_without_condition_none_is_said() -> None:
    assert body().keys() == {"events"}


def test_a_condition_is_said_in_todays_form() -> None:
    said = body(AppendCondition(Query.where(types=["A"], tags=["x:1"]), 5), 2)
    assert said["condition"] == {"failIfEventsMatch": {"items": [{"types": ["A"], "tags": ["x:1"]}]}, "after": 5}
    assert said["partition"] == 2


def test_a_condition_may_need_a_match() -> None:
    said = body(AppendCondition(Query.where(tags=["x"]), 0, requires_match=True))
    assert said["condition"] == {"failIfEventsMatch": {"items": [{"tags": ["x"]}]}, "after": 0, "requires_match": True}


def test_every_event_is_said_explicitly() -> None:
    assert wire.query_json(Query.all()) == {"all": True}
