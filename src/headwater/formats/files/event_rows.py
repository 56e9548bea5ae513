"""The events of a Parquet file written by `headwater export`, or by any program with the same columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from ...core.errors import InvalidInput
from ...core.event import Event
from ..arrow.tables import SCHEMA, events_of
from .parquet import batches_of, open_parquet

_ROWS = 1000


def parquet_events(source: IO[bytes]) -> Iterator[Event]:
    """The events of the rows, in order. The file must be seekable.

    Raises InvalidInput if a column is missing or of another type, or the file is damaged.
    """
    try:
        with open_parquet(source) as file:
            if missing := set(SCHEMA.names) - set(file.schema_arrow.names):
                problem = f"expected the columns of an export; missing: {', '.join(sorted(missing))}"
                raise InvalidInput(f"{problem}; `headwater pipeline import` imports other tables")
            for batch in batches_of(file, _ROWS, columns=SCHEMA.names):
                columns = [batch.column(field.name).cast(field.type) for field in SCHEMA]
                for event in events_of(pa.record_batch(columns, names=SCHEMA.names)):
                    yield event.event
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InvalidInput(f"the file is damaged or not an export: {' '.join(str(error).split())}") from None
