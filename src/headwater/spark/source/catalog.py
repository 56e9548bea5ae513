"""Creates tables of logs for SQL: `SHOW TABLES IN headwater`, `SELECT ... FROM headwater.orders`.

Python cannot define a catalog for Spark, so these are views in a database of the session's own catalog, each over a
table without options, which the view provides (docs/decisions/0101-views-for-sql.md).
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, StructType

from ...core.errors import InvalidInput, LogNotFound
from ...core.limits import show
from ..clients import client_of
from ..columns.payload_schema import check_payload, payload_type
from ..columns.schema import with_payload
from ..options import InvalidOption, is_pattern, nearest, text_of
from .options import READING, STREAM_ONLY, batch_options, columns_asked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE = "headwater"
PROPERTY = "headwater.log"
"""Marks a view created here."""
_OWN = {"log", "path", "paths", "columns", "includeMetadata", "payloadSchema", "filterPushdown"}
_SECRET = {"user", "password", "token"}


def register(
    spark: SparkSession,
    url: str | None = None,
    *,
    logs: str = "*",
    database: str = DATABASE,
    payload_schemas: Mapping[str, str] | None = None,
    **options: object,
) -> dict[str, str]:
    """Create a table of each log in a database of the session. Returns the log of each table.

    `logs` are names and patterns, as in the option `log`; `payload_schemas` the option `payloadSchema` of some logs;
    `options` other options of a batch read. Characters not allowed in SQL names become `_`. Views created here earlier
    and no longer needed are dropped: call it again when logs change. Each query sees the log's current content.

    Credentials come from the variables HEADWATER_TOKEN, or HEADWATER_USER and HEADWATER_PASSWORD, because arguments are
    visible in the views. Raises InvalidOption, InvalidInput (two logs with one name, a view created by someone else),
    LogNotFound, and the errors of BulkClient.
    """
    given = _checked(url, options)
    read = batch_options({**given, "log": logs})
    schemas = dict(payload_schemas or {})
    found = [log for log in client_of(read.address).logs() if read.wants(log)]
    if missing := [name for name in read.logs if not is_pattern(name) and name not in found]:
        raise LogNotFound(missing[0])
    for log in schemas:
        if log not in found:
            raise InvalidInput(f"no log {log!r} is registered{nearest(log, found) if found else ''}", "payload_schemas")
    tables = _named(found)
    if not re.fullmatch(r"\w{1,100}", database, re.ASCII):
        raise InvalidInput(f"expected letters, digits and _, got {show(database)}", "database")
    columns = {log: _columns(schemas.get(log)) for log in found}
    views = _Views(spark, database)
    views.prepare()
    for table, log in tables.items():
        views.make(table, log, {**given, "url": read.address.url}, columns[log], is_typed=log in schemas)
    views.drop_but(tables)
    return tables


def table_name(log: str) -> str:
    """The name of a log's table."""
    return re.sub(r"\W", "_", log, flags=re.ASCII).lower()


class _Views:
    """The views of one database, and the tables below them."""

    def __init__(self, spark: SparkSession, database: str) -> None:
        self._spark, self._database, self._below = spark, database, f"{database}_sources"
        self._before: dict[str, str | None] = {}

    def prepare(self) -> None:
        """Create missing databases, and list the views."""
        there = {row.namespace for row in self._sql("SHOW DATABASES")}
        for name in {self._database, self._below} - there:
            # A name in capitals is listed in lower case, so it may exist.
            self._sql(f"CREATE DATABASE IF NOT EXISTS `{name}` COMMENT 'logs of Headwater'{self._place(name)}")
        # Spark lists temporary views, which belong to no database, under every one.
        self._before = {
            row.tableName: None for row in self._sql(f"SHOW TABLES IN `{self._database}`") if not row.isTemporary
        }
        for row in self._sql(f"SHOW VIEWS IN `{self._database}`"):
            if row.isTemporary:
                continue
            properties = self._sql(f"SHOW TBLPROPERTIES `{self._database}`.`{row.viewName}`")
            self._before[row.viewName] = next((each.value for each in properties if each.key == PROPERTY), None)

    def _place(self, name: str) -> str:
        """The directory of a database, which stays empty; for an in-memory catalog, not below the working directory."""
        if self._spark.conf.get("spark.sql.catalogImplementation", "in-memory") != "in-memory":
            return ""
        directory = tempfile.mkdtemp(prefix=f"{name}-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        return f" LOCATION {quoted(directory)}"

    def make(self, table: str, log: str, options: Mapping[str, str], columns: str, *, is_typed: bool) -> None:
        """`is_typed`: it has its own columns. Raises InvalidInput if something else has that name."""
        if table in self._before and self._before[table] is None:
            raise InvalidInput(
                f"{self._database}.{table} exists and is not a view of a log; choose another name", "database"
            )
        below = f"`{self._below}`.`{f'events_of_{table}' if is_typed else 'events'}`"
        if is_typed:
            self._sql(f"DROP TABLE IF EXISTS {below}")  # its columns may have changed
        self._sql(f"CREATE TABLE IF NOT EXISTS {below} ({columns}) USING headwater")
        said = ", ".join([f"`{name}` = {quoted(value)}" for name, value in {**options, "log": log}.items()])
        self._sql(
            f"CREATE OR REPLACE VIEW `{self._database}`.`{table}` COMMENT {quoted(f'log {log}')} "
            f"TBLPROPERTIES ({quoted(PROPERTY)} = {quoted(log)}) AS SELECT * FROM {below} WITH ({said})"
        )

    def drop_but(self, tables: Mapping[str, str]) -> None:
        """Drop the views of logs created earlier that are not among these."""
        for table, log in self._before.items():
            if log is not None and table not in tables:
                self._sql(f"DROP VIEW `{self._database}`.`{table}`")

    def _sql(self, text: str) -> list[Any]:
        return self._spark.sql(text).collect()


def quoted(text: str) -> str:
    """A SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def ddl(type: DataType) -> str:
    """A type as DDL, for any field names."""
    if isinstance(type, StructType):
        return f"struct<{', '.join([f'{_name(field.name)}: {ddl(field.dataType)}' for field in type.fields])}>"
    if isinstance(type, ArrayType):
        return f"array<{ddl(type.elementType)}>"
    return type.simpleString()


def _name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _columns(payload: str | None) -> str:
    """The columns of a read, as DDL. Raises InvalidInput for an unsupported payload type, ParseException."""
    if payload is None:
        columns = with_payload(columns_asked({}), "")
    else:
        given = payload_type(payload)
        type = check_payload(DataType.fromDDL(payload) if isinstance(given, str) else given)
        columns = with_payload(columns_asked({"payloadSchema": type}), ddl(type))
    assert isinstance(columns, str)
    return columns


def _checked(url: str | None, options: Mapping[str, object]) -> dict[str, str]:
    """The options of every view. Raises InvalidOption for one that is specific to each log, or secret."""
    allowed = [each.name for each in READING if each not in STREAM_ONLY and each.name not in _OWN | _SECRET]
    names = {name.lower(): name for name in allowed}
    for name in options:
        if name.lower() in {each.lower() for each in _SECRET}:
            remedy = (
                "a view would expose it; set HEADWATER_TOKEN, or HEADWATER_USER and "
                "HEADWATER_PASSWORD, before Spark starts"
            )
            raise InvalidOption(remedy, name)
        if name.lower() not in names:
            raise InvalidOption(f"a table of a log has no such option{nearest(name, allowed)}", name)
    given = {names[name.lower()]: text_of(value) for name, value in options.items()}
    return given if url is None else {**given, "url": url}


def _named(logs: list[str]) -> dict[str, str]:
    """The log of each table. Raises InvalidInput if two have one name."""
    tables: dict[str, str] = {}
    for log in sorted(logs):
        if (other := tables.setdefault(table_name(log), log)) != log:
            problem = (
                f"{other!r} and {log!r} are both named {table_name(log)} in SQL; register them in different databases"
            )
            raise InvalidInput(problem, "logs")
    return tables
