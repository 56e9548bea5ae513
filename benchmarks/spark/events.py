"""What is stored: events made from their numbers, so that every contender has the same ones and answers can be checked.

An event has 256 bytes of JSON that hardly compress, one of 20 types, three tags, and an id that ascends as UUIDv7 does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa

BATCH_ROWS = 65_536
DATA_BYTES = 256
TYPES = 20
TAGS = 3
SCHEMA = pa.schema(
    [
        pa.field("type", pa.string()),
        pa.field("data", pa.binary()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("id", pa.string()),
    ]
)
_pool = random.Random(17).randbytes(1 << 19).hex()


def batches(total: int, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """The events 0 to `total - 1`, in batches of so many."""
    for first in range(0, total, rows):
        yield batch(first, min(rows, total - first))


def batch(first: int, rows: int) -> pa.RecordBatch:
    """The events from `first` on."""
    numbers = range(first, first + rows)
    columns = {
        "type": [f"AccountEvent{n * 7919 % TYPES:02d}" for n in numbers],
        "data": [_data(n) for n in numbers],
        "tags": [[f"account:{n * 31 % 5000}", f"course:{n * 17 % 2000}", f"region:{n % 50}"] for n in numbers],
        "id": [f"{n:08x}-0000-7000-8000-{n * 2654435761 % 2**48:012x}" for n in numbers],
    }
    return pa.record_batch([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def _data(n: int) -> bytes:
    known = f'{{"order":"{n:09d}","amount":{n * 97 % 9973:04d},"note":"'
    room = DATA_BYTES - len(known) - 2
    at = n * 241 % (len(_pool) - room)
    return f'{known}{_pool[at : at + room]}"}}'.encode()
