"""Projections: states, the queries that are derived, and what is read for them."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import Event, Query, QueryItem, SequencedEvent, errors
from headwater.decisions import (
    Decision,
    InvalidDefinition,
    MemorySnapshots,
    Projection,
    Several,
    Tag,
    UnreadableEvent,
    decide,
    event,
    project,
    write,
)
from headwater.decisions.folding import Plan
from headwater.decisions.projection import query_of
from headwater.decisions.shapes import layout_of
from headwater.decisions.testing import memory_log

from .courses import CourseDefined, SeatLeft, SeatTaken, courses_of, seats_left


def test_the_query_is_derived_from_handlers_and_tags() -> None:
    assert seats_left("go").query == Query.where(types=["CourseDefined", "SeatTaken", "SeatLeft"], tags=["course:go"])
    assert Projection(0).on(SeatTaken, lambda n, _: n + 1).query == Query.where(types=["SeatTaken"])


def test_several_are_one_query_with_an_item_for_each_set_of_tags() -> None:
    mine = Projection(False, tags={"course": "go", "student": "ann"}).on(SeatTaken, lambda _, taken: True)
    of_course = Projection(0, tags={"course": "go"}).on(SeatTaken, lambda n, _: n + 1)
    assert Plan([seats_left("go"), mine, of_course]).query == Query.of(
        QueryItem(("CourseDefined", "SeatLeft", "SeatTaken"), ("course:go",)),
        QueryItem(("SeatTaken",), ("course:go", "student:ann")),
    )


def test_a_projection_is_a_value() -> None:
    log = memory_log(CourseDefined("go", 2), SeatTaken("go", "ann"))
    base = Projection(10, tags={"course": "go"})
    one = base.on(CourseDefined, lambda n, _: n + 1)
    two = one.on(SeatTaken, lambda n, _: n + 1)
    assert [project(log, each) for each in (two, one, two)] == [12, 11, 12]
    with pytest.raises(InvalidDefinition, match="a projection handles no event type; add some with `on`"):
        project(log, base)


def test_a_state_that_is_changed_is_made_anew_each_time() -> None:
    log = memory_log(SeatTaken("go", "ann"), SeatTaken("chess", "ann"))

    def add(courses: list[str], taken: SeatTaken) -> list[str]:
        courses.append(taken.course)
        return courses

    projection = Projection.made_by(list[str], tags={"student": "ann"}).on(SeatTaken, add)
    assert project(log, projection) == project(log, projection) == ["go", "chess"]


@pytest.mark.parametrize("first", [[], ["go"], {}, set(), bytearray(), Counter()], ids=repr)
def test_a_first_state_that_its_users_would_share_is_refused(first: object) -> None:
    kind = type(first).__name__
    with pytest.raises(InvalidDefinition, match=rf"all uses .* would share; .* Projection.made_by\({kind}\)"):
        Projection(first, tags={"course": "go"})


def test_a_handler_may_see_the_event_as_it_is_stored() -> None:
    log = memory_log(CourseDefined("go", 1), SeatTaken("go", "ann"))
    numbers = Projection[tuple[int, ...]]((), tags={"course": "go"}).on_stored(
        SeatTaken, lambda seen, taken, stored: (*seen, stored.sequence_number)
    )
    assert project(log, numbers) == (2,)


def test_a_class_that_would_never_be_found_is_refused() -> None:
    with pytest.raises(
        InvalidDefinition, match="CourseDefined has no tag student and would never match; it has: course"
    ):
        Projection(0, tags={"student": "ann"}).on(CourseDefined, lambda n, _: n)
    with pytest.raises(errors.InvalidEvent, match=r"tags\[course\]: a tag: expected a str.*got None"):
        Projection(0, tags={"course": None})  # type: ignore[dict-item]


def test_two_classes_of_one_type_are_refused() -> None:
    @event(type="SeatTaken")
    class Taken:
        course: Annotated[str, Tag]

    mine = Projection(0, tags={"course": "go"}).on(Taken, lambda n, _: n)
    with pytest.raises(InvalidDefinition, match=r"SeatTaken and .*Taken are both stored as 'SeatTaken'"):
        Decision(seats_left("go"), mine, lambda left, n: CourseDefined("go", 1))


def test_an_event_that_cannot_be_read_is_named_and_one_that_nobody_asked_for_is_not() -> None:
    log = memory_log()
    log.append([Event("SeatTaken", b"?", ("course:chess",)), Event("CourseDefined", b"?", ("course:go",))])
    assert project(log, courses_of("ann")) == set()
    with pytest.raises(UnreadableEvent, match="event 2 of type 'CourseDefined' cannot be read"):
        project(log, seats_left("go"))


def test_what_a_handler_raises_passes_through_and_names_the_event() -> None:
    def fail(_: int, defined: CourseDefined) -> int:
        raise LookupError(defined.course)

    def fail_too(_: int, defined: CourseDefined, stored: SequencedEvent) -> int:
        raise LookupError(defined.course)

    begun, log = Projection(0, tags={"course": "go"}), memory_log(SeatTaken("go", "ann"), CourseDefined("go", 1))
    for failing in (begun.on(CourseDefined, fail), begun.on_stored(CourseDefined, fail_too)):
        with pytest.raises(LookupError) as caught:
            project(log, failing)
        assert caught.value.args == ("go",)
        assert caught.value.__notes__ == ["It was raised while handling event 2 of type 'CourseDefined'."]


def test_a_state_goes_on_without_an_event_that_cannot_be_read_where_it_may(caplog: pytest.LogCaptureFixture) -> None:
    log = memory_log(CourseDefined("go", 7))
    log.append([Event("CourseDefined", b"?", ("course:go",)), write(CourseDefined("go", 3))])

    def seats(unreadable: Any) -> Projection[int]:
        return Projection(0, tags={"course": "go"}, unreadable=unreadable).on(
            CourseDefined, lambda sum, defined: sum + defined.seats
        )

    store = MemorySnapshots()
    assert project(log, seats("skip")) == 10
    assert project(log, seats("skip").with_snapshots(store, int, version="1", every=1)) == 10
    assert caplog.messages[0].startswith("skipped: event 2 of type 'CourseDefined' cannot be read: ")
    for strict in (seats("fail"), seats("fail").with_snapshots(store, int, version="1", every=1)):
        with pytest.raises(UnreadableEvent, match="event 2 of type 'CourseDefined'"):
            project(log, strict)
    with pytest.raises(UnreadableEvent, match="event 2"):
        decide(log, Decision(seats("skip"), seats("fail"), lambda most, least: None))
    with pytest.raises(InvalidDefinition, match="`newest_only` reads only the newest event"):
        Projection(0, newest_only=True, unreadable="skip")
    with pytest.raises(InvalidDefinition, match="`unreadable`: expected 'fail' or 'skip', got 'ignore'"):
        seats("ignore")


events = st.lists(
    st.builds(CourseDefined, st.sampled_from("ab"), st.integers(0, 9))
    | st.builds(SeatTaken, st.sampled_from("ab"), st.sampled_from("xy"))
    | st.builds(SeatLeft, st.sampled_from("ab"), st.sampled_from("xy")),
    max_size=12,
)


def newest(course: str) -> Projection[object]:
    """The newest event of a course, whatever was before."""
    begun = Projection[object](None, tags={"course": course}, newest_only=True)
    return begun.on(CourseDefined, lambda _, each: each).on(SeatTaken, lambda _, each: each)


@given(happened=events)
def test_any_projections_together_are_what_they_are_apart(happened: list[object]) -> None:
    log = memory_log(*happened)
    seen: list[Any] = []
    projections = (seats_left("a"), newest("a"), courses_of("x"), newest("b"), seats_left("b"))

    def rule(*states: Any) -> None:
        seen.extend(states)

    decided = decide(log, Decision(*projections, rule))  # type: ignore[call-overload]
    assert decided.head == log.head()
    assert seen == [project(log, each) for each in projections]
    of_a = [each for each in happened if isinstance(each, CourseDefined | SeatTaken) and each.course == "a"]
    assert seen[1] == (of_a[-1] if of_a else None)
    mine: set[str] = set()
    for each in happened:
        if not isinstance(each, CourseDefined) and each.student == "x":
            (mine.add if isinstance(each, SeatTaken) else mine.discard)(each.course)
    assert seen[2] == mine


def test_only_the_newest_event_is_read_where_that_is_enough() -> None:
    log = memory_log(*[CourseDefined("a", seats) for seats in range(50)])
    before = log.statistics.events_read
    assert project(log, newest("a")) == CourseDefined("a", 49)
    assert log.statistics.events_read - before == 1


def test_nothing_is_asked_of_an_empty_log_twice() -> None:
    assert project(memory_log(), newest("a")) is None


def test_what_others_append_between_two_reads_is_not_seen_by_the_second() -> None:
    log = memory_log(CourseDefined("a", 1))

    class Growing:
        """The log, to which somebody appends after each read."""

        def __getattr__(self, name: str) -> Any:
            return getattr(log, name)

        def read(self, *arguments: Any, **more: Any) -> Any:
            reading = log.read(*arguments, **more)
            log.append([write(CourseDefined("a", 2))])
            return reading

    seen: list[object] = []
    decision = Decision(seats_left("a"), newest("a"), newest("b"), lambda *states: seen.extend(states))
    assert decide(Growing(), decision).head == 1  # type: ignore[arg-type]
    assert seen == [1, CourseDefined("a", 1), None]


@given(happened=events, wanted=st.lists(st.sampled_from("abc"), max_size=4))
def test_several_of_a_kind_are_one_state_in_their_order(happened: list[object], wanted: list[str]) -> None:
    log = memory_log(*happened)
    several = Several([seats_left(course) for course in wanted])
    expected = tuple(project(log, seats_left(course)) for course in wanted)
    assert project(log, several) == expected
    seen: list[Any] = []
    decide(log, Decision(courses_of("x"), several, courses_of("y"), lambda *states: seen.extend(states)))
    assert seen == [project(log, courses_of("x")), expected, project(log, courses_of("y"))]


class TestShapes:
    def test_the_same_projection_with_other_tags_is_of_the_same_shape(self) -> None:
        assert seats_left("chess").shape is seats_left("go").shape
        assert seats_left("chess").shape is not courses_of("ann").shape
        assert layout_of((seats_left("chess").shape,)) is layout_of((seats_left("go").shape,))

    def test_another_handler_for_a_class_takes_the_place_of_the_first(self) -> None:
        none = Projection(0, tags={"course": "chess"})
        counted = none.on(SeatTaken, lambda n, _: n + 1).on(SeatLeft, lambda n, _: n).on(SeatTaken, lambda n, _: n + 2)
        assert project(memory_log(SeatTaken("chess", "ann"), SeatLeft("chess", "ann")), counted) == 2

    @pytest.mark.parametrize("course", ["chess", "c" * 150, "d" * 400, "a\u200bb"])
    def test_its_query_is_as_any_other_is_made(self, course: str) -> None:
        both = [seats_left(course), courses_of("ann")]
        assert query_of(both) == Query.of(*[QueryItem(each.types, each.tags) for each in both])

    def test_a_tag_that_no_log_takes_is_refused(self) -> None:
        with pytest.raises(errors.InvalidQuery, match="control character"):
            Decision(seats_left("a\nb"), lambda _: None)

    def test_a_class_that_is_described_anew_is_read_as_it_is_now(self) -> None:
        @event
        class Renamed:
            course: Annotated[str, Tag]

        before = Projection(0, tags={"course": "a"}).on(Renamed, lambda n, _: n + 1)
        event(type="renamed")(Renamed)
        after = Projection(0, tags={"course": "a"}).on(Renamed, lambda n, _: n + 1)
        assert (before.types, after.types) == (("Renamed",), ("renamed",))
