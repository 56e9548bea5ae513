"""Decision records have one form, and the index has the title of each."""

from __future__ import annotations

import re

from .documents import ROOT, check_none, text_of

RECORDS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
_HEAD = re.compile(
    r"# (?P<number>\d+)\. (?P<title>.+)\n\n(?P<date>\d{4}-\d\d-\d\d)\. Decided\.(?P<more>.*\n(?:.+\n)*)\n"
)
"""A title with the number of the file; below it a paragraph of date and status, and the records that it replaces."""
_ROW = re.compile(r"^- (\d{4}) \[(.+)\]\((.+)\)$", re.MULTILINE)


def test_a_record_begins_with_number_title_date_and_status() -> None:
    heads = {path.name: _HEAD.match(text_of(path)) for path in RECORDS}
    check_none(
        f"docs/decisions/{name}: a record begins with '# N. Title', an empty line, and 'YYYY-MM-DD. Decided.'"
        for name, head in heads.items()
        if not head or int(head["number"]) != int(name[:4])
    )


def test_a_replaced_record_is_gone() -> None:
    numbers = {int(path.name[:4]) for path in RECORDS}
    replaced = {
        (path.name, int(number))
        for path in RECORDS
        if (head := _HEAD.match(text_of(path)))
        for sentence in re.findall(r"Replaces .*", " ".join(head["more"].split()))
        for number in re.findall(r"(?<![\d.-])\d{1,3}(?![\d.-])", re.sub(r"\([^()]*\)", "", sentence))
    }
    assert len(replaced) > 20
    still_there = sorted((name, number) for name, number in replaced if number in numbers)
    check_none(f"docs/decisions/{name} replaces {number}, and that is there" for name, number in still_there)


def test_the_index_has_each_record_by_its_title() -> None:
    rows = _ROW.findall(text_of(ROOT / "docs" / "decisions" / "index.md"))
    titles = [(path.name[:4], head["title"], path.name) for path in RECORDS if (head := _HEAD.match(text_of(path)))]
    assert sorted(rows) == titles
