"""Event classes: what is stored of them, byte by byte, and what is read of old shapes and old names."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, IntEnum
from typing import Annotated, Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import Event, Query, SequencedEvent, errors
from headwater.decisions import (
    MSGPACK,
    Codec,
    EventTypes,
    InvalidDefinition,
    Tag,
    UnknownEvent,
    UnreadableEvent,
    UnwritableEvent,
    event,
    write,
)
from headwater.decisions.events import event_type
from headwater.storage.memory import MemoryLog


class Colour(Enum):
    RED = "red"


class Rank(IntEnum):
    HIGH = 2


@event
class Lent:
    copy: Annotated[str, Tag]
    members: Annotated[list[str], Tag("member")]
    due: datetime | None = None
    shelf: Annotated[int | None, Tag] = None


class Given(msgspec.Struct, frozen=True):
    gift: Annotated[uuid.UUID, Tag]
    colour: Annotated[Colour, Tag]
    rank: Annotated[Rank, Tag]


@dataclass(frozen=True)
class Plain:
    note: str


@event(type="wide", codec=MSGPACK)
class Wide(msgspec.Struct, frozen=True):
    blob: bytes


def stored(given: Event) -> SequencedEvent:
    log = MemoryLog()
    log.append([given])
    return next(log.read())


@event
class Moved:
    copy: Annotated[str, Tag]


@event
class Sold(Moved):
    customer: Annotated[str, Tag]
    price: int = 0


ID = uuid.UUID(int=7)


@pytest.mark.parametrize(
    ("happened", "type", "data", "tags"),
    [
        (Lent("17", ["ann", "bob"]), "Lent", b'{"copy":"17","members":["ann","bob"],"due":null,"shelf":null}',
         ("copy:17", "member:ann", "member:bob")),
        (Lent("a:b", [], shelf=3), "Lent", b'{"copy":"a:b","members":[],"due":null,"shelf":3}',
         ("copy:a:b", "shelf:3")),
        (Given(ID, Colour.RED, Rank.HIGH), "Given",
         b'{"gift":"00000000-0000-0000-0000-000000000007","colour":"red","rank":2}',
         (f"gift:{ID}", "colour:red", "rank:2")),
        (Plain("x"), "Plain", b'{"note":"x"}', ()),
        (Wide(b"\0"), "wide", b"\x81\xa4blob\xc4\x01\0", ()),
        (Moved("17"), "Moved", b'{"copy":"17"}', ("copy:17",)),
        (Sold("17", "ann", 5), "Sold", b'{"copy":"17","customer":"ann","price":5}', ("copy:17", "customer:ann")),
    ],
)  # fmt: skip
def test_what_is_stored_of_an_event(happened: object, type: str, data: bytes, tags: tuple[str, ...]) -> None:
    written = write(happened)
    assert (written.type, written.data, written.tags) == (type, data, tags)
    assert (written.id, written.source, dict(written.attributes)) == ("", "", {})
    assert EventTypes(Lent, Given, Plain, Wide, Moved, Sold).read(stored(written)) == happened


@given(
    copy=st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=50),
    members=st.lists(st.sampled_from(["ann", "bob", "größe"])),
    due=st.none() | st.datetimes(),
)
def test_what_is_written_is_read(copy: str, members: list[str], due: datetime | None) -> None:
    lent = Lent(copy, members, due)
    assert event_type(Lent).read(stored(write(lent))) == lent


def test_an_event_whose_data_could_not_be_read_is_not_written() -> None:
    with pytest.raises(
        UnwritableEvent, match=r"type 'Plain' cannot be stored: Expected `str`, got `int` - at `\$.note`"
    ):
        write(Plain(3))  # type: ignore[arg-type]
    with pytest.raises(UnwritableEvent, match="type 'Plain' cannot be stored"):
        write(Plain(object()))  # type: ignore[arg-type]


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(errors.InvalidEvent, match="got the class Plain"):
        write(Plain)
    with pytest.raises(InvalidDefinition, match="str is not an event class"):
        write("text")


def test_a_value_that_is_no_tag_is_refused() -> None:
    @event
    class Weighed:
        weight: Annotated[float, Tag]

    with pytest.raises(errors.InvalidEvent, match=r"Weighed.weight: a tag: expected a str, int, UUID or an Enum"):
        write(Weighed(1.5))


class Thawed(msgspec.Struct):
    note: str


def nested() -> Any:
    class Nested:
        inner: list[Annotated[str, Tag]]

    return event(Nested)


def twice_tagged() -> Any:
    class Twice:
        name: Annotated[str, Tag, Tag("b")]

    return event(Twice)


def without_its_decorator() -> Any:
    class Returned(Moved):
        reason: str

    return write(Returned("17"))


def test_a_constant_of_a_subclass_is_no_field() -> None:
    class Delivered(Moved):
        room: ClassVar[str] = "hall"
        anything: ClassVar = 1

    assert write(Delivered("17")).type == "Delivered"


def of_a_class_that_changes() -> Any:
    class Draft(dataclass(type("Base", (), {"__annotations__": {"note": str}}))):  # type: ignore[misc]
        more: str

    return event(Draft)


def of_a_local_class() -> Any:
    class Inner:
        pass

    class Outer:
        inner: Inner

    return event(Outer)


@pytest.mark.parametrize(
    ("define", "problem"),
    [
        (of_a_local_class, "Outer: name 'Inner' is not defined; its annotations may only use names of its module"),
        (lambda: event(Thawed), "Thawed is not an event class: expected a frozen dataclass"),
        (lambda: event(dataclass(type("Loose", (), {}))), "Loose is not an event class"),
        (without_its_decorator, "Returned has only the fields of its base event class, not its own: reason; decorate"),
        (of_a_class_that_changes, "Draft: cannot inherit frozen dataclass from a non-frozen one"),
        (nested, r"Nested.inner: Tag must annotate the whole field"),
        (twice_tagged, "Twice.name: expected at most one tag for a field, got 2"),
        (lambda: Tag("a:b"), "a tag's key: expected text without a colon"),
        (lambda: event(type="")(type("a\nb", (), {})), "control character"),
        (lambda: event(version=0)(type("A", (), {})), "expected a version of 1 or more, got 0"),
        (
            lambda: event(version=2, upcasters={2: lambda old, _: old})(type("A", (), {})),
            "expected an upcaster from version 1 to 1, got one from 2",
        ),
        (lambda: EventTypes(Plain, event(type="Plain")(type("Other", (), {}))), "Other and Plain are both stored as"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_defined(define: Callable[[], object], problem: str) -> None:
    with pytest.raises(InvalidDefinition, match=problem):
        define()


@event(
    type="course-defined",
    version=4,
    formerly=["CourseCreated", "Created"],
    upcasters={
        1: lambda old, stored: {"course": stored.tags[0].partition(":")[2], "seats": old["size"]},
        3: lambda old, _: {**old, "room": "hall"},
    },
)
class CourseDefined:
    course: Annotated[str, Tag]
    seats: int
    room: str


def old(type: str, data: bytes, version: str = "") -> SequencedEvent:
    return stored(Event(type, data, ("course:go",), attributes={"dataversion": version} if version else {}))


@pytest.mark.parametrize(
    ("event", "room"),
    [
        (old("Created", b'{"size": 7}'), "hall"),
        (old("CourseCreated", b'{"size": 7}', "1"), "hall"),
        (old("CourseCreated", b'{"course": "go", "seats": 7}', "2"), "hall"),
        (old("course-defined", b'{"course": "go", "seats": 7}', "3"), "hall"),
        (old("course-defined", b'{"course": "go", "seats": 7, "room": "attic"}', "4"), "attic"),
    ],
)
def test_stored_events_of_old_shapes_and_names_are_read(event: SequencedEvent, room: str) -> None:
    assert EventTypes(CourseDefined).read(event) == CourseDefined("go", 7, room)


def test_the_version_is_stored_and_old_names_are_asked_for() -> None:
    assert dict(write(CourseDefined("go", 7, "hall")).attributes) == {"dataversion": "4"}
    expected = Query.where(types=["course-defined", "CourseCreated", "Created"], tags=["course:go"])
    assert EventTypes(CourseDefined).query("course:go") == expected


@pytest.mark.parametrize(
    ("data", "version", "problem"),
    [
        (b'{"course": "go", "seats": "x", "room": ""}', "4", r"Expected `int`, got `str` - at `\$.seats`"),
        (b'{"size": ', "1", "truncated"),
        (b"{}", "1", "size"),
        (b"", "2", "missing required field `course`"),
        (b"{}", "5", "its version is 5, but the known versions are 1 to 4"),
        (b"{}", "x", "invalid literal"),
    ],
)
def test_a_stored_event_that_cannot_be_read_is_named(data: bytes, version: str, problem: str) -> None:
    with pytest.raises(
        UnreadableEvent, match="event 1 of type 'course-defined' cannot be read: .*" + problem
    ) as caught:
        EventTypes(CourseDefined).read(old("course-defined", data, version))
    assert (caught.value.type, caught.value.sequence_number) == ("course-defined", 1)


def test_an_event_without_fields_may_have_no_data() -> None:
    @event
    class Happened:
        pass

    assert event_type(Happened).read(stored(Event("Happened"))) == Happened()


def test_unknown_types_are_errors_or_passed_on() -> None:
    log = MemoryLog()
    log.append([write(Plain("a")), Event("Foreign", b"?")])
    with pytest.raises(UnknownEvent, match="event 2 has type 'Foreign', for which no class is registered"):
        list(EventTypes(Plain).read_all(log.read()))
    plain, foreign = EventTypes(Plain, passes_unknown=True).read_all(log.read())
    assert plain == Plain("a")
    assert isinstance(foreign, SequencedEvent) and foreign.type == "Foreign"


class Reversed:
    """A codec of one's own: text, from the back."""

    def encode(self, event: Any) -> bytes:
        return str(event.note)[::-1].encode()

    def decoder(self, kind: Any) -> Any:
        return lambda data: kind(data.decode()[::-1])

    def fields(self, data: bytes) -> dict[str, Any]:
        return {"note": data.decode()[::-1]}

    def build(self, fields: dict[str, Any], kind: Any) -> Any:
        return kind(**fields)


def test_a_codec_of_ones_own() -> None:
    codec: Codec = Reversed()

    @event(codec=codec, version=2, upcasters={1: lambda old, _: {"note": old["note"].upper()}})
    class Said:
        note: str

    assert write(Said("abc")).data == b"cba"
    assert event_type(Said).read(stored(write(Said("abc")))) == Said("abc")
    assert event_type(Said).read(stored(Event("Said", b"cba"))) == Said("ABC")
