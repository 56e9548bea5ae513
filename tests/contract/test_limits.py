"""Limits: each is enforced on every kind of log, with the place, what was given and what is allowed."""

from __future__ import annotations

import pytest

from headwater.core import AppendCondition, Event, EventLog, Query
from headwater.core.errors import AppendConditionFailed, InvalidEvent

from ..builders import event, refusal
from ..odd_tags import ODD_TAGS, matching

LABEL = "expected a string of at most {} characters without control characters, got {!r}"

REFUSED: list[tuple[str, Event, str, str]] = [
    ("no type", event(""), "type", "a type must have 1 to 200 characters, got 0"),
    ("long type", event("t" * 201), "type", "a type must have 1 to 200 characters, got 201"),
    ("type with newline", event("a\nb"), "type", "a type must not contain control characters, got '\\n'"),
    ("type with delete", event("a\x7f"), "type", "a type must not contain control characters, got '\\x7f'"),
    ("type with C1 control", event("a\x85"), "type", "a type must not contain control characters, got '\\x85'"),
    ("empty tag", event("A", "ok", ""), "tags[1]", "a tag must have 1 to 1100 bytes of UTF-8, got 0"),
    ("long tag", event("A", "k" * 1101), "tags[0]", "a tag must have 1 to 1100 bytes of UTF-8, got 1101"),
    ("long tag of few characters", event("A", "ž" * 551), "tags[0]",
     "a tag must have 1 to 1100 bytes of UTF-8, got 1102"),
    ("tag with tab", event("A", "k:a\tb"), "tags[0]", "a tag must not contain control characters, got '\\t'"),
    ("tag with C1 control", event("A", "a\x85"), "tags[0]", "a tag must not contain control characters, got '\\x85'"),
    ("tag with surrogate", event("A", "a\ud800"), "tags[0]",
     "a tag must not contain control characters, got '\\ud800'"),
    ("too many tags", event("A", *(f"k:{n}" for n in range(129))), "tags", "129 tags given, at most 128 are allowed"),
    ("id with newline", event(id="a\nb"), "id", LABEL.format(512, "a\nb")),
    ("source with escape", event(source="\x1b"), "source", LABEL.format(2048, "\x1b")),
    ("group key with nul", event(group_key="\0"), "group_key", LABEL.format(512, "\0")),
    ("attribute name in capitals", event(attributes={"Subject": "x"}), "attributes",
     "an attribute's name must match [a-z0-9]{1,64}, got 'Subject'"),
    ("empty attribute name", event(attributes={"": "x"}), "attributes",
     "an attribute's name must match [a-z0-9]{1,64}, got ''"),
    ("attribute that is a field", event(attributes={"source": "x"}), "attributes",
     "source is a field of its own, not an attribute"),
    ("attribute with newline", event(attributes={"subject": "a\n"}), "attributes.subject", LABEL.format(4096, "a\n")),
    ("time without a date", event(attributes={"time": "now"}), "attributes.time",
     "expected an RFC 3339 time, got 'now'"),
    ("date that does not exist", event(attributes={"time": "2020-02-30T00:00:00Z"}), "attributes.time",
     "expected an RFC 3339 time, got '2020-02-30T00:00:00Z'"),
    ("empty subject", event(attributes={"subject": ""}), "attributes.subject",
     "expected a non-empty string, got ''; omit the attribute if there is no value"),
    ("dataschema with a space", event(attributes={"dataschema": "a b"}), "attributes.dataschema",
     "expected a URI, got 'a b'"),
    ("too many attributes", event(attributes={f"a{n}": "" for n in range(65)}), "attributes",
     "65 attributes given, at most 64 are allowed"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "where", "problem"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_breaks_a_limit_is_refused_with_its_place(log: EventLog, given: Event, where: str, problem: str) -> None:
    with refusal(InvalidEvent(problem, f"events[1].{where}")):
        log.append([event("Fine"), given])
    assert log.head() == 0


@pytest.mark.parametrize(
    ("name", "chars"), [("id", 512), ("source", 2048), ("group_key", 512)], ids=["id", "source", "group_key"]
)
def test_labels_have_a_length(log: EventLog, name: str, chars: int) -> None:
    log.append([event(**{name: "x" * chars})])
    with pytest.raises(InvalidEvent, match=f"at most {chars} characters") as caught:
        log.append([event(**{name: "x" * (chars + 1)})])
    assert caught.value.where == f"events[0].{name}"


def test_what_just_fits_is_taken_and_comes_back(log: EventLog) -> None:
    given = Event(
        type="t" * 200,
        tags=tuple(sorted(f"{'k' * 46}{number:04}:{'v' * 1049}" for number in range(128))),
        id="i" * 512,
        source="s" * 2048,
        attributes={f"{'a' * 60}{number:04}": "v" * 4096 for number in range(64)},
        group_key="g" * 512,
    )
    log.append([given])
    assert [each.event for each in log.read()] == [given]


def test_tags_of_many_forms_come_back_and_are_found(log: EventLog) -> None:
    """Each as a tag, and alone, without the tags of which it is the key."""
    tags = (*ODD_TAGS, *[f"{tag}:of this key" for tag in ODD_TAGS if len(tag.encode()) < 1000])
    log.append([event("A", tag) for tag in tags])
    assert [each.tags for each in log.read()] == [(tag,) for tag in tags]
    for tag in ODD_TAGS:
        found = log.read(Query.where(types=["A"], tags=[tag]))
        assert {each.tags[0] for each in found} == matching(tag, tags), tag
        assert [each.tags[0] for each in log.read(Query.where(exact_tags=[tag]))] == [tag]


def test_a_condition_can_ask_for_a_tag_exactly(log: EventLog) -> None:
    log.append([event("A", "order:17")])
    alone = Query.where(exact_tags=["order"])
    log.append([event("A", "order")], AppendCondition(alone))
    for query in (alone, Query.where(tags=["order"])):
        with pytest.raises(AppendConditionFailed):
            log.append([event("A", "order")], AppendCondition(query))
