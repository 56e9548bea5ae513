"""A lost, repeated, damaged or misplaced event would be noticed, and a number that was told wrongly."""

from __future__ import annotations

import pytest

from .ledger import Book, Page, faults_of_reader, faults_of_writer

STORED = {3: "good:a:0", 4: "good:b:0", 7: "good:a:1", 9: "good:a:2"}
ACKNOWLEDGED = ["good:a:0", "good:a:1", "good:a:2"]


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        ({3: "good:a:0", 7: "good:a:1"}, "a: acknowledged and not there: good:a:2"),
        ({**STORED, 10: "good:a:1"}, "a: stored more than once: good:a:1"),
        ({**STORED, 10: "good:a:3"}, "a: never sent, or given up, and there: good:a:3"),
        (
            {3: "good:a:0", 7: "good:a:2", 9: "good:a:1"},
            "a: not in the order of its acknowledgements, from good:a:2 on",
        ),
    ],
)
def test_a_lost_a_repeated_an_unknown_or_a_misplaced_event_would_be_noticed(
    stored: dict[int, str], problem: str
) -> None:
    assert problem in faults_of_writer("a", ACKNOWLEDGED, [], {}, stored)


def test_what_was_under_way_may_be_there_once_or_not_at_all() -> None:
    assert faults_of_writer("a", ACKNOWLEDGED, ["good:a:3"], {}, STORED) == []
    assert faults_of_writer("a", ACKNOWLEDGED, ["good:a:3"], {}, {**STORED, 12: "good:a:3"}) == []
    [fault] = faults_of_writer("a", ACKNOWLEDGED, ["good:a:3"], {}, {**STORED, 12: "good:a:3", 13: "good:a:3"})
    assert fault == "a: stored more than once: good:a:3"


def test_a_writer_that_was_told_another_number_would_be_noticed() -> None:
    [fault] = faults_of_writer("a", ACKNOWLEDGED, [], {"good:a:0": 3, "good:a:1": 8}, STORED)
    assert fault == "a: told another number than the one where it is: good:a:1 as 8"


def test_a_reader_that_missed_or_made_up_an_event_would_be_noticed() -> None:
    page = Page("it", may_repeat=False)
    for number in (3, 4, 9, 11):
        assert page.turn(number) == ""
    assert faults_of_reader(page, STORED, None) == [
        "it missed 1 events: 7 (good:a:1)",
        "it saw 1 events that are not there, or not for it: 11",
    ]
    assert faults_of_reader(page, {3: "good:a:0", 4: "good:b:0", 9: "good:a:2"}, frozenset({"a"})) == [
        "it saw 2 events that are not there, or not for it: 4, 11"
    ]


def test_an_event_that_comes_again_is_a_fault_for_those_whom_it_may_not_and_a_late_one_for_all() -> None:
    for may_repeat, again in ((False, "received event 3 again"), (True, "")):
        page = Page("it", may_repeat=may_repeat)
        assert [page.turn(number) for number in (3, 7, 3)] == ["", "", again]
        assert page.turn(4) == "received event 4 for the first time after event 7"


def test_readers_that_disagree_and_damaged_payloads_would_be_noticed() -> None:
    book, one, other = Book(), Page("one", may_repeat=False), Page("the other", may_repeat=False)
    book.note(one, 1, book.text("good:a:0").encode())
    book.note(other, 1, b'{"value": "%b"}' % book.text("good:a:0").encode())
    assert book.faults == []
    book.note(one, 2, book.text("good:a:1").encode())
    book.note(other, 2, book.text("good:b:0").encode())
    book.note(one, 3, book.text("good:a:2").encode()[:-1])
    book.note(one, 4, b"{}")
    assert [fault.partition(":")[0] for fault in book.faults] == [
        "the other received good",
        "one received event 3 (good",
        "one received event 4, which nobody wrote",
    ]
