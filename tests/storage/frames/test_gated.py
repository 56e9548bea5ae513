"""The bit of a frame that says that all of its events passed all checks: who earns it, and who is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headwater.core import Event, Query, QueryItem
from headwater.core.errors import InvalidEvent
from headwater.core.event import Encoding
from headwater.core.limits import EventColumns, check_append
from headwater.core.query import ALL
from headwater.formats.arrow.columns import ArrowColumns, batch_of
from headwater.formats.arrow.events import columns_of
from headwater.formats.stubs import UNFIT, event_fault, fit_or_stub, handed_on
from headwater.storage import Engine, backup, restore
from headwater.storage.frames.encoding import encode
from headwater.storage.frames.layout import GATED_FEATURE, MAGIC, OPTIONAL_AT
from headwater.storage.log import StoredLog
from headwater.storage.memory import MemoryLog
from headwater.storage.state.journal import JOURNAL
from tests.amqp.streams.messages import cloud_event, data, stored
from tests.every import every

from ..builders import CHAIN, columns, content, decoded, event

MESSAGE = Event("M", b"\x00\x53\x75\xa0\x01x", (), "m", encoding=Encoding.AMQP)


def unchecked(*events: Event, is_gated: bool = False) -> EventColumns:
    """As a version before the gate made them."""
    return EventColumns.unchecked(*zip(*events, strict=True), 1000, is_gated=is_gated)


def frame_of(given: EventColumns) -> Any:
    return decoded(encode(given, (), 1, 1000, CHAIN))


def test_a_frame_has_the_bit_if_all_that_joined_in_it_passed() -> None:
    good, old = columns([event("A")]), unchecked(event("B", id="b"))
    arrow = columns_of(batch_of(good), MemoryLog().settings)
    assert isinstance(arrow, ArrowColumns)
    for given, is_gated in (
        ([good], True), ([arrow], True), ([good, good], True), ([good, arrow, EventColumns.none()], True),
        ([arrow, arrow], True), ([old], False), ([good, old], False), ([arrow, old], False),
        ([good] * 9 + [arrow, old], False),
    ):  # fmt: skip
        joined = EventColumns.join(given)
        assert joined.is_gated is joined.take([0]).is_gated is frame_of(joined).is_gated is is_gated


def test_the_bit_is_where_the_format_says() -> None:
    for given, bits in ((columns([event("A")]), 2), (unchecked(event("A", id="a")), 0)):
        buffer = content(encode(given, (), 1, 1000, CHAIN))
        assert int.from_bytes(buffer[OPTIONAL_AT : OPTIONAL_AT + 2], "little") == bits
    assert GATED_FEATURE == 2


def test_messages_pass_the_gate_too() -> None:
    assert columns([MESSAGE]).is_gated
    assert columns_of(batch_of(columns([MESSAGE])), MemoryLog().settings).is_gated


A, B = Query.of(QueryItem(types=("A",))), Query.of(QueryItem(types=("B",)))


def check_pages(log: StoredLog | MemoryLog) -> None:
    """Pages with an event of a frame without the bit say so, and others not: by number, backwards, by query."""

    def is_gated(query: Query, after: int, **options: Any) -> bool:
        return log.read_page(query, after, **options).is_gated

    assert is_gated(ALL, 0, limit=2)
    assert not is_gated(ALL, 0, limit=3)
    assert not is_gated(ALL, 4, backwards=True, limit=2)
    assert is_gated(ALL, 7, backwards=True, limit=2)
    assert not is_gated(ALL, 6, backwards=True)
    assert is_gated(A, 0) and is_gated(A, 9, backwards=True)
    assert not is_gated(B, 0) and not is_gated(B, 9, backwards=True) and not is_gated(B, 0, limit=1)


def test_a_page_says_whether_all_of_its_frames_have_the_bit(data: Path, tmp_path: Path) -> None:
    with Engine(data, maintains=False) as engine:
        log = engine.create("orders")
        log.append([event("A"), event("A")])
        log.append_columns(unchecked(event("B", id="1"), event("B", id="2")))
        log.append([event("A"), event("A")])
        check_pages(log)
        backup(data, tmp_path / "copy")
    with Engine(data, maintains=False) as engine:
        check_pages(engine.open("orders"))
    restore(tmp_path / "copy", tmp_path / "restored")
    with Engine(tmp_path / "restored", maintains=False) as engine:
        check_pages(engine.open("orders"))


def test_the_state_makes_no_claim(data: Path) -> None:
    with Engine(data, maintains=False) as engine:
        engine.create("orders")
    (path,) = (data / JOURNAL).glob("log/*.log")
    content = path.read_bytes()
    places = [found.start() for found in re.finditer(MAGIC, content)]
    assert places
    assert not any(content[at + OPTIONAL_AT] for at in places)


def test_only_events_of_pages_without_it_are_looked_at(data: Path) -> None:
    poison = MESSAGE._replace(id="p", data=b"poison")
    with Engine(data, maintains=False) as engine:
        log = engine.create("orders")
        log.append_columns(unchecked(poison, is_gated=True))
        log.append_columns(unchecked(poison._replace(id="q"), MESSAGE))
        assert handed_on(log.read_page(ALL, 0, limit=1))[0].data == b"poison"
        stub, fit = handed_on(log.read_page(ALL, 1))
        assert b'{"unfit":{"reason":"data: not an AMQP message: expected a section' in stub.data
        assert b'"bytes":6' in stub.data
        assert (stub.id, stub.type, stub.encoding, stub.envelope) == ("q", "M", Encoding.DATA, b"")
        assert fit.event == MESSAGE


@every("attributes", [{"time": "now"}, {"subject": "", "datacontenttype": ""}, {"dataschema": "", "x": "1"}])
def test_an_attribute_that_is_none_is_left_out_and_named(attributes: dict[str, str]) -> None:
    log = MemoryLog()
    log.append_columns(unchecked(Event("A", b"kept", (), "1", "/s", attributes)))
    (found,) = log.read_page(ALL, 0).events
    reason, is_stub = event_fault(found) or ("", True)
    assert reason.startswith("attributes.") and not is_stub
    fit = fit_or_stub(found)
    assert fit.data == b"kept"
    names = fit.attributes[UNFIT].split(",")
    assert {name: value for name, value in attributes.items() if name not in names} == {
        name: value for name, value in fit.attributes.items() if name != UNFIT
    }
    assert event_fault(fit) is None


def test_an_attribute_with_a_bad_name_makes_a_stub() -> None:
    log = MemoryLog()
    log.append_columns(unchecked(Event("A", b"1", (), "1", "/s", {"time": "now", "Bad": "x"})))
    (found,) = log.read_page(ALL, 0).events
    reason, is_stub = event_fault(found) or ("", False)
    assert is_stub and reason.startswith("attributes: ") and "got 'Bad'" in reason
    assert b'"unfit"' in fit_or_stub(found).data


def test_a_message_that_says_it_is_an_event_which_no_log_takes_is_handed_on() -> None:
    """It hurts no reader, and earlier versions took it."""
    envelope = cloud_event(time="now") + data(b"x")[:-1]
    old = stored(Event("t", b"x", envelope=envelope))
    with pytest.raises(InvalidEvent, match="envelope: cloudEvents:time: expected an RFC 3339 time, got 'now'"):
        check_append([old.event], 1024)
    assert fit_or_stub(old) is old
    assert event_fault(old) is None


@pytest.mark.parametrize("is_known", [True, False])
def test_what_is_fit_stays_as_it_is(is_known: bool) -> None:
    log = MemoryLog()
    log.append([event("A", "a:1")]) if is_known else log.append_columns(unchecked(event("A", id="1")))
    page = log.read_page(ALL, 0)
    assert page.is_gated is is_known
    assert handed_on(page)[0] is page.events[0]
