"""Streams of Arrow IPC: what they say of themselves is looked at before anything is made of it."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core import LogSettings
from headwater.core.errors import InvalidEvent, InvalidInput, TooLarge
from headwater.core.limits import APPEND_EVENTS_MAX
from headwater.formats.arrow.events import columns_of
from headwater.formats.arrow.stream import BATCHES_MAX, SCHEMA_BYTES_MAX, batch_of_stream, stream_of_batch

BATCH = pa.record_batch({
    "type": ["A", "B"], "data": pa.array([b"1", None], pa.binary()), "tags": [["a:1"], []], "id": ["1", "2"],
    "attributes": pa.array([[("subject", "s")], []], pa.map_(pa.string(), pa.string())),
})  # fmt: skip


def stream(*batches: pa.RecordBatch, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def test_a_batch_goes_there_and_back() -> None:
    assert batch_of_stream(stream_of_batch(BATCH)).equals(BATCH)


def test_several_batches_are_one() -> None:
    assert batch_of_stream(stream(BATCH, BATCH.slice(1), BATCH)).to_pylist() == [
        *BATCH.to_pylist(), BATCH.to_pylist()[1], *BATCH.to_pylist()
    ]  # fmt: skip
    assert batch_of_stream(stream(BATCH.slice(0, 0))).num_rows == 0


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_what_is_compressed_is_refused_unread(codec: str) -> None:
    bomb = pa.record_batch({"type": ["A"], "data": [bytes(50_000_000)]})
    content = stream(bomb, compression=codec)
    assert len(content) < 1_000_000
    before = pa.total_allocated_bytes()
    with pytest.raises(InvalidEvent, match="compressed batches are not supported") as caught:
        batch_of_stream(content)
    assert caught.value.where == "batches[0]"
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_rows_are_counted_before_they_are_read() -> None:
    many = pa.record_batch({"type": pa.nulls(40_000), "data": pa.nulls(40_000)})
    with pytest.raises(TooLarge) as caught:
        batch_of_stream(stream(many, many))
    assert (caught.value.given, caught.value.allowed) == (80_000, APPEND_EVENTS_MAX)
    content = bytearray(stream(BATCH))
    at = content.rindex(struct.pack("<q", 2))  # the last one is in a node of a column
    while (at := content.rfind(struct.pack("<q", 2), 0, at)) > 0:
        with pytest.raises(InvalidInput):
            columns_of(batch_of_stream(bytes(content[:at] + struct.pack("<q", -1) + content[at + 8 :])), LogSettings())


def test_values_that_stand_in_many_rows_at_once_are_refused() -> None:
    coded = pa.array(["A", "A"]).dictionary_encode()
    with pytest.raises(InvalidEvent, match="dictionaries and views are not supported"):
        batch_of_stream(stream(pa.record_batch({"type": coded, "data": [b"", b""]})))


def views(count: int, content: bytes) -> pa.Array:
    """So many texts that all lie at one place."""
    each = struct.pack("<i4sii", len(content), content[:4], 0, 0)
    return pa.Array.from_buffers(pa.string_view(), count, [None, pa.py_buffer(each * count), pa.py_buffer(content)])


@pytest.mark.parametrize("is_map", [True, False])
def test_views_and_dictionaries_within_attributes_are_refused(is_map: bool) -> None:
    keys, values = pa.array(["a"] * 1000), views(1000, b"x" * 100_000)
    offsets = pa.array(range(1001), pa.int32())
    pairs = pa.StructArray.from_arrays([keys, values], names=["key", "value"])
    column = pa.MapArray.from_arrays(offsets, keys, values) if is_map else pa.ListArray.from_arrays(offsets, pairs)
    before = pa.total_allocated_bytes()
    with pytest.raises(InvalidEvent, match="dictionaries and views are not supported"):
        batch_of_stream(stream(pa.record_batch({"type": ["A"] * 1000, "data": [b""] * 1000, "attributes": column})))
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_a_long_schema_and_too_many_batches_are_refused() -> None:
    schema = BATCH.schema.with_metadata({"a": "b" * SCHEMA_BYTES_MAX})
    with pytest.raises(TooLarge) as caught:
        batch_of_stream(stream(BATCH.cast(schema)))
    assert caught.value.where == "schema"
    one = BATCH.slice(0, 1)
    assert batch_of_stream(stream(*[one] * BATCHES_MAX)).num_rows == BATCHES_MAX
    with pytest.raises(InvalidEvent, match=f"more than {BATCHES_MAX} batches"):
        batch_of_stream(stream(*[one] * (BATCHES_MAX + 1)))


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xff\xff\xff\0\0\0\0", b"[]", b"ARROW1\0\0", bytes(100), stream(BATCH)[:-40]]
)
def test_what_is_no_stream_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidEvent):
        batch_of_stream(content)


CONTENT = stream(BATCH, BATCH.slice(1))


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(CONTENT) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_stream_with_other_bytes_in_it_is_taken_or_refused(changes: list[tuple[int, int]]) -> None:
    content = bytearray(CONTENT)
    for at, byte in changes:
        content[at] = byte
    try:
        columns = columns_of(batch_of_stream(bytes(content)), LogSettings())
    except InvalidInput:
        return
    assert 1 <= columns.count == len(columns.tags) <= APPEND_EVENTS_MAX
