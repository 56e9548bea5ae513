"""Run a SQL query; each log is a table, `headwater.orders` for log `orders`.

Rows go to standard output as a table, JSON lines or CSV. The query sees the events at its start. Columns are those of
the data source; with --payload-schema, JSON payloads are columns too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ...core.errors import InvalidInput
from ..pipeline.option import option
from ..pipeline.run import Run, Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IS_STREAM = False
IS_ANSWER = True
COLUMN_CHARS_MAX = 60
"""The characters shown in a cell of a table; JSON and CSV show all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sql:
    """The query, its logs, and the output format."""

    query: str = option("The query, such as 'SELECT type, count(*) FROM headwater.orders GROUP BY type'.",
                        metavar="SQL")  # fmt: skip
    logs: str = option("The logs to register as tables: names and patterns, separated by commas.", default="*",
                       metavar="LOGS")  # fmt: skip
    payload_schema: tuple[str, ...] = option(
        "Payload columns of a log, such as 'orders=order string, total double'.",
        default=(), metavar="LOG=COLUMNS",
    )  # fmt: skip
    archive: str | None = option("The Delta table that contains the trimmed events.", default=None, metavar="PATH")
    format: Literal["table", "ndjson", "csv"] = option("Output format of rows.", default="table")
    rows_max: int = option("Maximum number of rows shown.", default=1000, minimum=1, maximum=1_000_000)

    def __post_init__(self) -> None:
        """Raises InvalidInput."""
        if not self.query.strip():
            raise InvalidInput("expected a SQL query, got none", "--query")
        self.schemas()

    def schemas(self) -> dict[str, str]:
        """The payload schema of each log. Raises InvalidInput."""
        found = {}
        for given in self.payload_schema:
            log, equals, columns = given.partition("=")
            if not equals or not log or not columns.strip():
                raise InvalidInput(f"expected LOG=COLUMNS, got {given!r}", "--payload-schema")
            found[log] = columns
        return found


OPTIONS = Sql
EXAMPLES = (
    "--query 'SELECT type, count(*) AS events FROM headwater.orders GROUP BY type'",
    "--query 'SELECT sum(payload.total) AS total FROM headwater.orders' --payload-schema 'orders=total double'",
    "--query 'SHOW TABLES IN headwater'",
)


def plan(options: Sql, run: Run) -> list[str]:
    """See headwater.spark.jobs."""
    _check_who(run)
    with run.server.client() as client:
        count = len(client.logs())
    return [
        f"register the logs {options.logs} on {run.server.url}, which has {count:,}",
        f"run {options.query}",
        f"show at most {options.rows_max:,} rows, as {options.format}",
    ]


def run(spark: SparkSession, options: Sql, run: Run) -> Summary:
    """See headwater.spark.jobs."""
    from ..source.catalog import register

    _check_who(run)
    others = {"caFile": run.server.ca_file, "archive": options.archive}
    given = {name: value for name, value in others.items() if value is not None}
    if not run.server.is_verified:
        given["tlsVerify"] = "false"
    register(spark, run.server.url, logs=options.logs, payload_schemas=options.schemas(), **given)
    rows, columns = run.step(spark, lambda: _asked(spark.sql(options.query), options.rows_max + 1, options.format))
    is_more = len(rows) > options.rows_max
    for line in _lines(rows[: options.rows_max], columns, options.format):
        print(line)
    sys.stdout.flush()
    if is_more:
        run.say(f"sql: there are more than {options.rows_max:,} rows; increase --rows-max to show more")
    return run.summary(rows=min(len(rows), options.rows_max), is_all=not is_more)


def _check_who(run: Run) -> None:
    """Raises InvalidInput if the credentials are not in the variables: those of an option would be visible in the
    views.
    """
    from ..clients import address_of

    server = run.server
    if server.user is None and server.token is None:
        return
    known = address_of({"url": server.url})
    if (known.token, known.user, known.password) != (server.token, server.user, server.password):
        variables = "HEADWATER_FLIGHT_URL, and HEADWATER_TOKEN or HEADWATER_USER and HEADWATER_PASSWORD"
        raise InvalidInput(
            f"set the variables {variables} instead: Spark stores the definitions of views", "--user, --token"
        )


def _asked(frame: DataFrame, rows_max: int, format: str) -> tuple[list[tuple[Any, ...]], list[str]]:
    """Rows and the names of their columns, which may repeat in a join. Raises InvalidInput if the format is JSON and a
    name repeats.
    """
    twice = [name for number, name in enumerate(frame.columns) if name in frame.columns[:number]]
    if twice and format == "ndjson":
        raise InvalidInput(f"two columns are called {twice[0]!r}, which JSON does not allow; use AS", "--query")
    found = frame.limit(rows_max).toArrow()
    return list(zip(*[column.to_pylist() for column in found.columns], strict=True)), found.column_names


def _lines(rows: list[tuple[Any, ...]], columns: list[str], format: str) -> Iterator[str]:
    if format == "ndjson":
        import msgspec

        for values in rows:
            yield msgspec.json.encode(dict(zip(columns, map(_plain, values), strict=True))).decode()
        return
    cells = [[_cell(value) for value in row] for row in rows]
    if format == "csv":
        import csv
        import io

        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows([columns, *cells])
        yield written.getvalue().removesuffix("\n")
        return
    shown = [[_short(cell) for cell in row] for row in [columns, *cells]]
    widths = [max(len(cell) for cell in column) for column in zip(*shown, strict=True)]
    for number, row in enumerate(shown):
        yield "  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]).rstrip()
        if number == 0:
            yield "  ".join(["-" * width for width in widths])


def _short(cell: str) -> str:
    cell = "".join([sign if sign.isprintable() else " " for sign in cell])
    return cell if len(cell) <= COLUMN_CHARS_MAX else f"{cell[: COLUMN_CHARS_MAX - 1]}…"


def _plain(value: Any) -> Any:
    """A value in a form that JSON supports: bytes are text if they are UTF-8, otherwise hexadecimal."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _cell(value: Any) -> str:
    import msgspec

    value = _plain(value)
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode().strip('"')
