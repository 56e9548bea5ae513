"""The troubleshooting page has each problem, condition, exit code, event of trouble and line of the log."""

from __future__ import annotations

import re

from .documents import check_none, name_of, table_after, text_of
from .log_lines import log_lines, templates, words
from .sources import SOURCES
from .troubleshooting import BEGIN, PAGE, advice, tables, with_tables

REMEDY = "`python -m tests.docs.troubleshooting` writes the rows; the last cell is yours"


def test_its_tables_have_the_rows_of_the_code() -> None:
    page = text_of(PAGE)
    assert page == with_tables(page), REMEDY


def test_each_row_says_what_to_do() -> None:
    page = text_of(PAGE)
    for table in tables():
        said = advice(page.partition(BEGIN.format(table.name))[2].partition("\n\n")[0])
        check_none((f"{table.name}: {row[0]} has no advice" for row in table.rows if not said.get(row[0])), REMEDY)


def test_each_line_of_warning_or_worse_is_in_its_table_by_words_that_a_reader_can_search_for() -> None:
    rows = table_after(PAGE, "lines of the log")
    there = {span for first, *_ in rows for span in re.findall("`([^`]+)`", first)}
    logged = [(line.place, line.template, words(line.template)) for line in log_lines()]
    check_none(
        [
            *(f"{place}: {template!r} has no words to search for" for place, template, found in logged if not found),
            *(f"{place}: no row has `{found}`" for place, _, found in logged if found and found not in there),
            *(f"nothing logs `{span}`" for span in there - {found for *_, found in logged}),
            *(f"{first}: no advice" for first, *_, last in rows if not last),
        ]
    )


def test_only_the_events_of_the_server_choose_their_level() -> None:
    assert [name_of(each) for each in SOURCES if "logger.log(" in text_of(each)] == [
        "src/headwater/server/monitoring/notifications.py"
    ]


def test_lines_are_found_however_they_are_written() -> None:
    source = (
        "logger.info('fine')\n"
        "self._logger.exception('%s %s failed: internal error', a, b)\n"
        "def f():\n"
        "    what = '%s: its end is lost; %s'\n"
        "    _logger.warning(what, 1, 2)\n"
        "    logger.error(f'log {name} is gone')\n"
        "    logger.critical('it ended' + more)\n"
        "    logger.error('%s', error)\n"
        "    logger.warning(text())\n"
    )
    assert {(line, words(template)) for line, template in templates(source)} == {
        (2, "failed: internal error"),
        (5, "its end is lost"),
        (6, "is gone"),
        (7, "it ended"),
        (8, None),
        (9, None),
    }


def test_words_to_search_for_are_the_first_that_say_something() -> None:
    assert words("log %s: %s") is None
    assert words("log %s: cutting a torn tail behind event %d (%s)") == "cutting a torn tail behind event"
    assert words("%s; the journal is fetched whole") == "the journal is fetched whole"
    assert words("skipped: %s") == "skipped"
