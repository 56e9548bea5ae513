"""What is read quickly is what is read with care, and everything else is left to that."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.cne import quick_reading, reading, rendering
from headwater.cne.notification import Dialect, Notification, Opaque, Value
from headwater.core.errors import InvalidInput
from headwater.storage.memory import MemoryStore
from tests.every import every

from .builders import NODE_SYNC_STATE, bare, text, v1_value, v2_value, wrapped
from .test_states import value_at
from .world import V1, V2, World

PLAIN = {
    "v2": wrapped(v2_value()),
    "v2, of several values": wrapped(v2_value(), v2_value(value_type="decimal64.3", value="-1.5")),
    "v2, without values": {**wrapped(), "data": {"version": "1.0", "values": []}},
    "v2, of a vendor's type": wrapped(v2_value(value_type="vendor")),
    "v1": bare(v1_value()),
    "v1 in CloudEvents": wrapped(v1_value()),
    "names of both": wrapped({"ResourceAddress": "/a", "dataType": "metric", "value_type": "metric", "value": "1"}),
    "another version of the data": {**bare(v1_value()), "data": {"version": "2", "values": [v1_value()]}},
    "a content type": {**wrapped(v2_value()), "datacontenttype": "application/vnd.x+json"},
    "an offset": {**bare(v1_value()), "time": "2021-02-05T17:31:00+01:00"},
}


def carefully(raw: bytes, dialect: Dialect | None = None) -> Notification | None:
    try:
        return reading.read(reading.members_of(raw), dialect)
    except InvalidInput:
        return None


@every("name", PLAIN)
@every("indent", [None, 2])
@every("dialect", [None, *Dialect])
def test_plain_documents_are_read_quickly(name: str, indent: int | None, dialect: Dialect | None) -> None:
    document = {"time": "2021-02-05T17:31:00Z", **PLAIN[name]}
    document = {member: value for member, value in document.items() if value is not None}
    raw = json.dumps(document, indent=indent).encode()
    assert quick_reading.read(raw) == carefully(raw, dialect) is not None


EVENT = '"id": "1", "type": "t", "source": "/s", "time": "2021-02-05T17:31:00Z", '
VALUE = '"ResourceAddress": "/a", "data_type": "metric", "value_type": "decimal64.3", "value": "1"'
DOCUMENT = f'{{{EVENT}"data": {{"version": "1.0", "values": [{{{VALUE}}}]}}}}'
NOT_PLAIN = {
    "a member twice": ('"id"', '"id": "2", "id"'),
    "a member of data twice": ('"version"', '"version": "2", "version"'),
    "a member of a value twice": ('"value":', '"value": "2", "value":'),
    "data twice": ('"data"', '"data": {"version": "2", "values": []}, "data"'),
    "another member": ('"id"', '"subject": "x", "id"'),
    "another member that is a number": ('"id"', '"x": 1, "id"'),
    "another member of data": ('"version"', '"x": null, "version"'),
    "another member of a value": ('"value":', '"x": 1, "value":'),
    "two names for one member": ('"value":', '"resource": "/b", "value":'),
    "an escape": ('"/s"', '"\\u002fs"'),
    "DEL": ('"/s"', '"/\x7f"'),
    "a letter": ('"/s"', '"/\u00e4"'),
    "a control character": ('"/s"', '"/\n"'),
    "a number": ('"1"}', "1}"),
    "an empty text": ('"/s"', '""'),
    "an empty name of a type": ('"metric"', '""'),
    "an empty version": ('"id"', '"specversion": "", "id"'),
    "CloudEvents 0.3": ('"id"', '"specversion": "0.3", "id"'),
    "no decimal": ('"1"}', '"x"}'),
    "no time": ("2021-02-05T17:31:00Z", "now"),
    "no such time": ("2021-02-05", "2021-02-31"),
    "a text as a Redfish event": ("decimal64.3", "redfish-event"),
    "a content type as bare events have it": ('"id"', '"specversion": "1.0", "dataContentType": "x/y", "id"'),
    "something behind it": ("]}}", "]}} {}"),
    "no document": (DOCUMENT, f"[{DOCUMENT}]"),
    "nothing": (DOCUMENT, ""),
    "a long one": ('"/s"', f'"/{"s" * quick_reading.TEXT_BYTES_MAX}"'),
}


@every("name", NOT_PLAIN)
def test_everything_else_is_left_to_careful_reading(name: str) -> None:
    plain, other = NOT_PLAIN[name]
    assert quick_reading.read(DOCUMENT.encode()) is not None
    assert plain in DOCUMENT
    assert quick_reading.read(DOCUMENT.replace(plain, other, 1).encode()) is None


_texts = st.sampled_from(
    ["", "1", "/a", "metric", "decimal64.3", "redfish-event", "\u00e4", "a\\n", '"', "1.0", "\x7f"]
)
_names = st.sampled_from(
    ["id", "type", "source", "time", "specversion", "datacontenttype", "dataContentType", "subject", "tags", "x"]
)
_value_names = st.sampled_from(
    ["ResourceAddress", "resource", "data_type", "dataType", "value_type", "valueType", "value", "type", "x"]
)
_given = st.one_of(_texts, st.integers(), st.none())


@settings(max_examples=300)
@given(
    st.lists(st.tuples(_names, _given), max_size=3),
    st.lists(st.tuples(_value_names, _given), max_size=3),
    st.booleans(),
)
def test_both_agree_wherever_the_quick_one_answers(
    members: list[tuple[str, object]], of_value: list[tuple[str, object]], twice: bool
) -> None:
    """Members given twice come where the second is spelled in another order: both stand in the text."""
    value = [*json.loads(f"{{{VALUE}}}").items(), *of_value]
    pairs = [*json.loads(f"{{{EVENT[:-2]}}}").items(), *members]
    kept = value if twice else list(dict(value).items())
    outside = pairs if twice else list(dict(pairs).items())
    data = f'{{"version": "1.0", "values": [{_object(kept)}]}}'
    raw = (_object(outside)[:-1] + f', "data": {data}}}').encode()
    if (found := quick_reading.read(raw)) is not None:
        for dialect in Dialect:
            assert found == carefully(raw, dialect)


def _object(pairs: list[tuple[str, object]]) -> str:
    return (
        "{" + ", ".join(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in pairs) + "}"
    )


_any = st.text(max_size=20)


@given(st.lists(_any, min_size=4, max_size=4), st.dictionaries(st.from_regex("[a-z]{1,9}", fullmatch=True), _any), _any)
def test_an_event_is_never_larger_than_is_said(texts: list[str], extensions: dict[str, str], value: str) -> None:
    id, type, source, schema = (each.encode(errors="replace").decode() for each in texts)
    kept = {name: value.encode(errors="replace").decode() for name, value in extensions.items()}
    values = (Value("/a", "metric", "enumeration", "\x00" * 9), Value("/b", "metric", "x", Opaque(text([1, id]))))
    made = Notification(id, type, source, "", "1", values, data_schema=schema, extensions=kept)
    assert len(rendering.structured(made, 10**18 - 1)) <= rendering.size_at_most(made)


def test_a_plain_notification_is_read_once_and_another_of_its_id_by_itself(
    play: Any, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes to the log by another way may use any id, of an event that was only announced, too."""
    texts: list[bytes] = []
    read = quick_reading.read

    def watched(raw: bytes) -> Notification | None:
        texts.append(raw)
        return read(raw)

    monkeypatch.setattr(quick_reading, "read", watched)

    async def scenario(world: World) -> None:
        one, other = (
            text(wrapped(v2_value(ResourceAddress=NODE_SYNC_STATE, value=value))) for value in ("LOCKED", "FREERUN")
        )
        assert (await world.ask("POST", f"{V2}/create/event", one)).status == 202
        assert await value_at(world, NODE_SYNC_STATE) == "LOCKED"
        assert texts == [one]
        (event,) = store.open("cne").read()
        store.open("cne").append([event.event._replace(source="/other", data=other)])
        assert await value_at(world, NODE_SYNC_STATE) == "FREERUN"
        feed = world.app.service._supervisor.present
        assert feed is not None
        feed.announce(event.event._replace(id="ce-2"), read(one) or pytest.fail("it is plain"))
        store.open("cne").append([event.event._replace(id="ce-2", data=other.replace(b"FREERUN", b"HOLDOVER"))])
        assert await value_at(world, NODE_SYNC_STATE) == "HOLDOVER"

    play(scenario)


def test_what_is_strict_is_not_read_quickly(play: Any) -> None:
    async def scenario(world: World) -> None:
        plain = text(wrapped(v2_value(value_type="vendor")))
        assert (await world.ask("POST", f"{V2}/create/event", plain)).status == 202
        assert (await world.ask("POST", f"{V2}/create/event", plain, query="strict=true")).status == 400

    play(scenario)


def test_routes_of_v1_that_are_not_there_say_so_in_its_form(play: Any) -> None:
    async def scenario(world: World) -> None:
        for _ in range(2):  # the way of a path is remembered
            assert (await world.ask("GET", f"{V1}/nothing/here")).body
            assert not (await world.ask("GET", f"{V2}/nothing/here")).body

    play(scenario)
