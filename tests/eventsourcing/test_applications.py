"""Applications of `eventsourcing` on a log: slices with decisions, and objects that endure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from eventsourcing.dcb.application import DCBApplication
from eventsourcing.dcb.domain import EnduringObject, Selector, Slice
from eventsourcing.dcb.msgpack import Decision, InitialDecision
from eventsourcing.domain import event
from eventsourcing.persistence import IntegrityError
from tests.eventsourcing.places import PLACES


class CopyAdded(Decision):
    copy: str


class CopyLent(Decision):
    copy: str
    member: str


class Lend(Slice[Decision]):
    def __init__(self, copy: str, member: str) -> None:
        self.copy, self.member = copy, member
        self.is_there, self.holder = False, ""

    def consistency_boundary(self) -> Selector:
        return Selector(types=[CopyAdded, CopyLent], tags=[f"copy:{self.copy}"])

    @event(CopyAdded)
    def _(self) -> None:
        self.is_there = True

    @event(CopyLent)
    def _(self, member: str) -> None:
        self.holder = member

    def execute(self) -> None:
        if not self.is_there or self.holder:
            raise PermissionError(self.holder or "no such copy")
        self.trigger_event(CopyLent, [f"copy:{self.copy}", f"member:{self.member}"], self.copy, self.member)


class Add(Slice[Decision]):
    def __init__(self, copy: str) -> None:
        self.copy = copy

    def consistency_boundary(self) -> Selector:
        return Selector(tags=[f"copy:{self.copy}"])

    def execute(self) -> None:
        self.trigger_event(CopyAdded, [f"copy:{self.copy}"], self.copy)


class Student(EnduringObject[Decision]):
    class Registered(InitialDecision):
        student_id: str
        name: str

    class Renamed(Decision):
        name: str

    def __init__(self, name: str) -> None:
        self.name = name

    @event(Renamed)
    def rename(self, name: str) -> None:
        self.name = name


class Library(DCBApplication):
    env = {  # noqa: RUF012 - theirs is one, too
        "PERSISTENCE_MODULE": "headwater.eventsourcing",
        "MAPPER_TOPIC": "eventsourcing.dcb.msgpack:MessagePackMapper",
    }


@pytest.fixture(params=PLACES)
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    with PLACES[request.param]() as url, Library({"HEADWATER_URL": url}) as library:
        yield library


def test_a_slice_decides_on_what_was_decided(library: Library) -> None:
    library.do(Add("17"))
    library.do(Lend("17", "ann"))
    with pytest.raises(PermissionError, match="ann"):
        library.do(Lend("17", "bob"))
    with pytest.raises(PermissionError, match="no such copy"):
        library.do(Lend("18", "bob"))
    with pytest.raises(IntegrityError):
        library.do(Add("17"))
    assert [each.event.tags for each in library.recorder.read()] == [["copy:17"], ["copy:17", "member:ann"]]


def test_a_slice_that_is_late_is_refused(library: Library) -> None:
    library.do(Add("17"))
    late = library.repository.advance(Lend("17", "bob"))
    library.do(Lend("17", "ann"))
    late.execute()
    with pytest.raises(IntegrityError):
        library.repository.save(late)


def test_an_enduring_object_endures(library: Library) -> None:
    student = Student(name="Max")
    student.rename("Maxim")
    library.repository.save(student)
    [copy] = library.repository.get_many(student.id)
    assert isinstance(copy, Student)
    assert copy.name == "Maxim"
    student.last_known_position = 1
    student.rename("Maxime")
    with pytest.raises(IntegrityError):
        library.repository.save(student)
