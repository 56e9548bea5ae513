import json

import pytest

from headwater.core import Event
from headwater.core.errors import InvalidInput
from headwater.formats.files.ocel import ocel_events_and_refused

VERSION_1 = {
    "ocel:global-log": {"ocel:object-types": ["order", "item"]},
    "ocel:objects": {"o1": {"ocel:type": "order", "ocel:ovmap": {}}, "i 1": {"ocel:type": "line item"}},
    "ocel:events": {
        "2": {"ocel:activity": "pay", "ocel:timestamp": "2024-01-01T11:00:00+00:00", "ocel:omap": ["o1"]},
        "1": {
            "ocel:activity": "place",
            "ocel:timestamp": "2024-01-01T10:00:00Z",
            "ocel:omap": ["o1", "i 1"],
            "ocel:vmap": {"total": 3.5},
        },
    },
}
VERSION_2 = {
    "objectTypes": [{"name": "order", "attributes": []}],
    "eventTypes": [{"name": "place", "attributes": []}],
    "objects": [{"id": "o1", "type": "order", "relationships": [], "attributes": []}],
    "events": [
        {
            "id": "e1",
            "type": "place",
            "time": "2024-01-01T10:00:00Z",
            "attributes": [{"name": "total", "value": 3.5}],
            "relationships": [{"objectId": "o1", "qualifier": "placed order"}],
        }
    ],
}


def ocel_events(document: bytes, source: str) -> list[Event]:
    """The events, where all elements are some. Raises InvalidInput with the first problem."""
    events, refused = ocel_events_and_refused(document, source)
    if refused:
        raise InvalidInput(refused[0].problem)
    return events


def test_objects_of_version_1_become_tags_and_events_come_in_order_of_time() -> None:
    place, pay = ocel_events(json.dumps(VERSION_1).encode(), "shop")
    assert (place.id, place.type, place.source) == ("1", "place", "shop")
    assert place.tags == ("line_item:i 1", "order:o1")
    assert place.attributes == {"time": "2024-01-01T10:00:00Z", "datacontenttype": "application/json"}
    assert json.loads(place.data) == {
        "attributes": {"total": 3.5},
        "objects": [{"id": "o1", "type": "order"}, {"id": "i 1", "type": "line item"}],
    }
    assert (pay.id, pay.tags) == ("2", ("order:o1",))


def test_qualifiers_of_version_2_are_kept() -> None:
    (place,) = ocel_events(json.dumps(VERSION_2).encode(), "shop")
    assert (place.id, place.tags) == ("e1", ("order:o1",))
    assert json.loads(place.data) == {
        "attributes": {"total": 3.5},
        "objects": [{"id": "o1", "type": "order", "qualifier": "placed order"}],
    }


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"[]", "not an OCEL JSON document"),
        (b"{", "not an OCEL JSON document"),
        (b'{"events": [{"id": 1}]}', r"`\$\.events\[0\]\.id`"),
        (
            b'{"events": [{"id": "e", "type": "t", "time": "x", "relationships": [{"objectId": "o"}]}]}',
            "event 'e': it refers to object 'o', which is not in the document",
        ),
        (b'{"events": [{"id": "e", "type": "t", "time": "x"}]}', "event 'e': expected a time as ISO 8601.*got 'x'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(document: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ocel_events(document, "shop")
