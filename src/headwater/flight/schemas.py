"""The columns of a ticket, and their conversion from the batches of a scan. For appends see `formats.arrow.events`."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ..core.errors import InvalidInput
from ..core.limits import show
from ..formats.arrow.tables import SCHEMA
from .wire import Ticket

LOG = "log"
SPARK_SCHEMA = pa.schema(
    [
        pa.field(LOG, pa.string(), nullable=False),
        *[field.with_type(pa.timestamp("us", tz="UTC")) if field.name == "recorded_at" else field for field in SCHEMA],
    ]
)


def read_columns(ticket: Ticket) -> list[str]:
    """The columns of SCHEMA that a ticket requests. Raises InvalidInput for unknown or repeated columns, or none."""
    known = SPARK_SCHEMA.names if ticket.schema == "spark" else SCHEMA.names
    if ticket.columns is None:
        return list(SCHEMA.names)
    if not ticket.columns:
        raise InvalidInput("expected at least one column, got none", "columns")
    for index, name in enumerate(ticket.columns):
        if name not in known:
            raise InvalidInput(f"got {show(name)}, expected one of {', '.join(known)}", f"columns[{index}]")
        if name in ticket.columns[:index]:
            raise InvalidInput(f"{show(name)} occurs twice", f"columns[{index}]")
    return [name for name in ticket.columns if name != LOG]


def schema_of(ticket: Ticket) -> pa.Schema:
    """The schema of a ticket's stream. Raises the same errors as `read_columns`."""
    read_columns(ticket)
    whole = SPARK_SCHEMA if ticket.schema == "spark" else SCHEMA
    return whole if ticket.columns is None else pa.schema([whole.field(name) for name in ticket.columns])


class Shaping:
    """Converts the batches of a scan to the schema of their ticket. There is one converter per stream."""

    def __init__(self, ticket: Ticket) -> None:
        self.schema = schema_of(ticket)
        self.columns: Sequence[str] = read_columns(ticket) or ["sequence_number"]
        """The columns to scan. If only the log's name is requested, a column that counts the rows."""
        self._log = ticket.log
        self._names = pa.array([], pa.string())
        self._is_plain = ticket.schema is None

    def shape(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch to that schema."""
        if self._is_plain:
            return batch
        return pa.record_batch([self._column(field, batch) for field in self.schema], schema=self.schema)

    def _column(self, field: pa.Field, batch: pa.RecordBatch) -> pa.Array:
        if field.name == LOG:
            if len(self._names) < batch.num_rows:  # built for the largest batch; smaller batches get slices of it
                self._names = pa.repeat(self._log, batch.num_rows)
            return self._names.slice(0, batch.num_rows)
        column = batch.column(field.name)
        return column if column.type == field.type else column.cast(field.type)
