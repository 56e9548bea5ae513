"""Statements in every paramstyle, and connections that will not do."""

from __future__ import annotations

import sqlite3
import sys
import types
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import InvalidInput
from headwater.decisions.sql import (
    PARAMSTYLES,
    Transaction,
    check_transactions,
    checked_name,
    paramstyle_of,
    translated,
)

TABLES = (("seat", "seat_2"),)


@pytest.mark.parametrize(
    ("paramstyle", "statement"),
    [
        ("qmark", "UPDATE seat_2 SET a = ?, b = '?%{seat}' WHERE c LIKE \"50%?\" AND d % 2 = ? AND e ? 'k'"),
        ("numeric", "UPDATE seat_2 SET a = :1, b = '?%{seat}' WHERE c LIKE \"50%?\" AND d % 2 = :2 AND e ? 'k'"),
        ("named", "UPDATE seat_2 SET a = :v1, b = '?%{seat}' WHERE c LIKE \"50%?\" AND d % 2 = :v2 AND e ? 'k'"),
        ("format", "UPDATE seat_2 SET a = %s, b = '?%%{seat}' WHERE c LIKE \"50%%?\" AND d %% 2 = %s AND e ? 'k'"),
        ("pyformat", "UPDATE seat_2 SET a = %s, b = '?%%{seat}' WHERE c LIKE \"50%%?\" AND d %% 2 = %s AND e ? 'k'"),
    ],
)
def test_statements_in_every_style(paramstyle: str, statement: str) -> None:
    given = "UPDATE {seat} SET a = ?, b = '?%{seat}' WHERE c LIKE \"50%?\" AND d % 2 = ? AND e ?? 'k'"
    assert translated(given, paramstyle, TABLES) == (statement, 2)


@given(text=st.text("'?%a\"{} ", max_size=8))
def test_what_format_styles_make_is_the_statement_again(text: str) -> None:
    tables = tuple([("a" * size, "t") for size in range(1, 7)])
    plain, count = translated(text, "qmark", tables)
    for style in ("format", "pyformat"):
        made, again = translated(text, style, tables)
        assert again == count
        assert made.replace("%%", "\0").replace("%s", "?").replace("\0", "%") == plain


@pytest.mark.parametrize("paramstyle", ["qmark", "numeric", "named"])
def test_sqlite_takes_what_is_made(paramstyle: str) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        transaction = Transaction(connection, paramstyle, {"seat": "seat_2"})
        transaction.execute("CREATE TABLE {seat} (a TEXT, b INTEGER)")
        assert transaction.change("INSERT INTO {seat} VALUES (?, ?), ('?', ?)", ("x", 1, 2)) == 2
        assert transaction.execute("SELECT a, b FROM {seat} WHERE b % 2 = ?", (0,)) == [("?", 2)]


def test_what_does_not_fit_is_refused() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        transaction = Transaction(connection, "qmark", dict(TABLES))
        with pytest.raises(InvalidInput, match="got 1 values for 2 placeholders"):
            transaction.execute("SELECT ?, ?", (1,))
        with pytest.raises(InvalidInput, match="tables: 'chair' is not declared; expected one of: seat"):
            transaction.execute("SELECT * FROM {chair}")
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            transaction.execute("SELECT * FROM {seat}")
    with pytest.raises(InvalidInput, match=r"name: expected \[A-Za-z_\]"):
        checked_name("a; DROP", "name")


class Silent:
    """A connection of a library that does not say how it wants placeholders."""


def test_the_style_is_what_the_library_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(sqlite3.connect(":memory:", factory=type("Mine", (sqlite3.Connection,), {}))) as connection:
        assert paramstyle_of(connection) == "qmark"
    for style in PARAMSTYLES:
        module: Any = types.ModuleType("somedb")
        module.paramstyle = style
        monkeypatch.setitem(sys.modules, "somedb", module)
        assert paramstyle_of(type("Connection", (), {"__module__": "somedb.inner"})()) == style
    with pytest.raises(InvalidInput, match="Silent has no paramstyle; pass one of qmark, numeric"):
        paramstyle_of(Silent())


def test_a_connection_that_commits_by_itself_is_refused() -> None:
    problem = "the connection is in autocommit mode"
    with (
        closing(sqlite3.connect(":memory:", isolation_level=None)) as connection,
        pytest.raises(InvalidInput, match=problem),
    ):
        check_transactions(connection)
    automatic: Any = Silent()
    automatic.autocommit = True
    with pytest.raises(InvalidInput, match=problem):
        check_transactions(automatic)
    automatic.get_autocommit = lambda: False
    check_transactions(automatic)
