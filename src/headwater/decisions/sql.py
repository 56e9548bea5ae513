"""Statements for any database with a DB-API connection (PEP 249), whatever its placeholder style."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from ..core.errors import InvalidInput
from ..core.quoting import show

PARAMSTYLES = ("qmark", "numeric", "named", "format", "pyformat")
POSTGRESQL_LIBRARIES = ("psycopg", "psycopg2", "psycopg2cffi", "pg8000")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,50}", re.ASCII)
_TOKEN = re.compile(r"""(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*")|(?P<mark>\?\??)|\{(?P<table>\w+)\}|(?P<percent>%)""")
_SEEN_MAX = 500


class Transaction:
    """A transaction of the caller's database, in which handlers of a read model write."""

    def __init__(self, connection: Any, paramstyle: str, tables: Mapping[str, str]) -> None:
        self.connection = connection
        """The connection itself; do not commit on it."""
        self._paramstyle = paramstyle
        self._tables = tuple(tables.items())

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows, if any.

        The placeholder of a value is `?`, whatever the database's own placeholder is; `??` is a question mark.
        `{seats}` is the table `seats` of this version of the read model. Quoted text is left alone. Raises InvalidInput
        for a table that is not declared, and the errors of the database.
        """
        cursor = self._done(statement, values)
        try:
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()

    def change(self, statement: str, values: Sequence[object] = ()) -> int:
        """Run a statement and return how many rows it changed. Raises the same errors as `execute`."""
        cursor = self._done(statement, values)
        count: int = cursor.rowcount
        cursor.close()
        return count

    def _done(self, statement: str, values: Sequence[object]) -> Any:
        text, count = translated(statement, self._paramstyle, self._tables)
        if count != len(values):
            raise InvalidInput(f"got {len(values)} values for {count} placeholders", "values")
        cursor = self.connection.cursor()
        try:
            if self._paramstyle == "named":
                cursor.execute(text, {f"v{number}": value for number, value in enumerate(values, 1)})
            else:
                cursor.execute(text, tuple(values))
        except BaseException:
            cursor.close()
            raise
        return cursor


@lru_cache(_SEEN_MAX)
def translated(statement: str, paramstyle: str, tables: tuple[tuple[str, str], ...]) -> tuple[str, int]:
    """The statement in that style, and its number of values. Raises InvalidInput for an unknown table."""
    names, count = dict(tables), 0
    percent = "%%" if paramstyle in ("format", "pyformat") else "%"

    def token(found: re.Match[str]) -> str:
        nonlocal count
        if (table := found["table"]) is not None:
            if table not in names:
                raise InvalidInput(
                    f"{show(table)} is not declared; expected one of: {', '.join(names) or 'none'}", "tables"
                )
            return names[table]
        if found["mark"] == "?":
            count += 1
            return {"qmark": "?", "numeric": f":{count}", "named": f":v{count}"}.get(paramstyle, "%s")
        return "?" if found["mark"] else found[0].replace("%", percent)

    return _TOKEN.sub(token, statement), count


def paramstyle_of(connection: Any) -> str:
    """The placeholder style of a connection's library. Raises InvalidInput if it does not declare one."""
    for kind in type(connection).__mro__:
        module = sys.modules.get(kind.__module__.partition(".")[0])
        if (found := getattr(module, "paramstyle", None)) in PARAMSTYLES:
            return str(found)
    raise InvalidInput(f"{type(connection).__name__} has no paramstyle; pass one of {', '.join(PARAMSTYLES)}")


def lock_tables(transaction: Transaction) -> None:
    """Serialize the transactions that create or drop tables, until this transaction ends.

    PostgreSQL needs it: its IF NOT EXISTS does not see a table that another transaction is creating, and fails when
    that commits.
    """
    roots = {kind.__module__.partition(".")[0] for kind in type(transaction.connection).__mro__}
    if not roots.isdisjoint(POSTGRESQL_LIBRARIES):
        transaction.execute("SELECT pg_advisory_xact_lock(hashtext('headwater read models'))")


def check_transactions(connection: Any) -> None:
    """Raises InvalidInput for a connection in autocommit mode."""
    if isinstance(connection, sqlite3.Connection):
        commits = connection.isolation_level is None and getattr(connection, "autocommit", -1) == -1
        commits = commits or getattr(connection, "autocommit", -1) is True
    else:
        asked = getattr(connection, "get_autocommit", None)
        commits = bool(asked()) if asked else getattr(connection, "autocommit", False) is True
    if commits:
        raise InvalidInput("the connection is in autocommit mode; open it with transactions", "connection")


def checked_name(name: str, where: str) -> str:
    """A name that cannot inject SQL. Raises InvalidInput."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"expected {_NAME.pattern}, got {show(name)}", where)
    return name
