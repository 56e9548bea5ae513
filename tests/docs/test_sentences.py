"""Turns of phrase that make a sentence hard to read become fewer: each folder's counts are committed, and only fall."""

from __future__ import annotations

import pytest

from . import sentences
from .sentences import INSTEAD, WAYS, Rise, Text, changes, committed, lower, present, risen

COMMAND = "`python -m tests.docs.sentences`"


def test_no_folder_has_more_of_them_than_it_had() -> None:
    problems = risen(committed(), present())
    assert not problems, f"{INSTEAD}; {COMMAND} WAY lists the places of one: {problems}"


def test_what_became_fewer_is_written_down() -> None:
    fallen = [f"{what}: {old} before, {new} now" for what, old, new in changes(committed(), present()) if new < old]
    assert not fallen, f"well done: {COMMAND} writes it down: {fallen}"


def test_turns_are_found_over_the_end_of_a_line() -> None:
    cases = {
        "is told": ("It is\ntold. They were told; who tells?", 2),
        "is to be": ("A flag that is to be set", 1),
        "nobody": ("Nobody reads it, and nobody writes it", 2),
        "Who ... does": ("Who reads, waits. Users who read do not. Who is it? Fine: who asks, gets.", 2),
        "for who": ("for who comes, from who left, those who stay", 2),
        "what is": ("What waits is read; what they want", 1),
        "those that": ("those that\nfollow, and those events that follow", 1),
    }
    found = {way: len(Text("documents", "docs", "page", text).found(way)) for way, (text, _) in cases.items()}
    assert found == {way: count for way, (_, count) in cases.items()}


def test_all_kinds_of_text_are_counted() -> None:
    assert set(present()) == {"documents", "help and messages", "docstrings"}
    assert {way for ways in present()["documents"].values() for way in ways} <= set(WAYS)
    assert "docs/guides" in committed()["documents"]


def test_counts_are_written_lower_and_never_higher(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"documents": {"docs": {"anew": 2}, "gone": {"anew": 1}}}
    less = {"documents": {"docs": {"anew": 1}}}
    assert '"anew": 1' in lower(more, less) and "gone" not in lower(more, less)
    with pytest.raises(Rise, match=r"documents of docs, 'anew': 2 times, 1 are allowed"):
        lower(less, more)
    file = tmp_path / "counts.json"
    file.write_text(lower(less, less))
    monkeypatch.setattr(sentences, "COUNTS", file)
    monkeypatch.setattr(sentences, "present", lambda: more)
    assert sentences.main([]) == 1
    assert file.read_text() == lower(less, less) and "nothing was written" in capsys.readouterr().err
