"""Converts JSON payloads to columns with Arrow's kernels, in the task that reads them; malformed ones stay as bytes.

The payloads of a batch are one text for Arrow's parser, each row as `{"r": ROW, "p": [PAYLOAD]}`. The output rows must
equal the input rows, so no payload can shift another into a wrong row; and each row has one value, so that nothing
follows an object. If one payload is malformed, the parser rejects all of them, so they are retried in parts."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

_MAY_BE_OBJECT = np.isin(np.arange(256), np.frombuffer(b" \t\r\n{n", np.uint8))
"""By the first byte of a text: whether the text can be an object or null."""
_READING = pj.ReadOptions(
    use_threads=False, block_size=2**30
)  # tasks already run in parallel; one block gives one answer
_END, _NOTHING, _NULL = pa.scalar(b"]}\n", pa.binary()), pa.scalar(b"", pa.binary()), pa.scalar(b"null", pa.binary())
_REFUSED_ROW = re.compile(r"JSON parse error: .* in row (\d+)", re.DOTALL)
"""The parser's message, including field names. A message about an invalid time ends with its text."""


class PayloadReader:
    """Reads payloads as one type: an Arrow struct without maps."""

    def __init__(self, type: pa.StructType) -> None:
        self._type = type
        units = ("us", "ns") if _as_read(type, "us") != _as_read(type, "ns") else ("us",)
        self._parsings = [_parsing(type, unit) for unit in units]
        """Both ways to parse times, starting with the one that worked last: years 1 to 9999, or nine digits of a
        second.
        """
        self._starts = pa.array([], pa.binary())

    def read(self, data: pa.BinaryArray) -> tuple[pa.StructArray, pa.BinaryArray]:
        """The payloads as structs, and the bytes of the malformed ones; null for all others.

        An empty payload and JSON's null are null in both.
        """
        lengths = pc.binary_length(data).to_numpy(zero_copy_only=False)
        refused = (lengths > 0) & ~(_MAY_BE_OBJECT[_first_bytes(data)] & _are_text(data))
        texts = pc.if_else(pa.array((lengths == 0) | refused), _NULL, data)
        rows = pc.binary_join_element_wise(self._starts_of(len(data)), texts, _END, _NOTHING)
        parts: list[pa.Array] = []
        at, ends = 0, [len(data)]
        while ends:
            if at == (upto := ends[-1]):
                ends.pop()
            elif isinstance(found := self._parsed(rows, at, upto), pa.Array):
                parts.append(found)
                at = upto
            elif found > at:
                ends.append(found)
            else:
                parts.append(pa.nulls(1, self._type))
                refused[at] = True
                at += 1
        payloads = pa.concat_arrays(parts) if parts else pa.nulls(0, self._type)
        return payloads, pc.if_else(pa.array(refused), data, pa.scalar(None, pa.binary()))

    def _parsed(self, rows: pa.BinaryArray, at: int, upto: int) -> pa.Array | int:
        """The rows in [at, upto) as structs. If one is malformed, the row up to which to retry; `at` means that this
        row is malformed.
        """
        furthest = at
        for parsing in self._parsings:
            found = self._parsed_by(parsing, rows, at, upto)
            if isinstance(found, pa.Array):
                self._parsings.sort(key=lambda each: each is not parsing)
                return found
            furthest = max(furthest, found)
        return furthest

    def _parsed_by(self, parsing: pj.ParseOptions, rows: pa.BinaryArray, at: int, upto: int) -> pa.Array | int:
        try:
            found = pj.read_json(_text(rows, at, upto), read_options=_READING, parse_options=parsing)
            numbers, values = _column(found, "r"), _column(found, "p")
            if numbers.equals(pa.array(np.arange(at, upto, dtype=np.int32))) and _are_single(values):
                payloads = values.flatten().cast(self._type, safe=False)  # digits below microseconds are truncated
                if _are_numbers(payloads):
                    return payloads
        except pa.ArrowInvalid as error:
            # The rows before the failing one are retried alone, so that the parser reports a row or none.
            if (said := _REFUSED_ROW.fullmatch(str(error))) and (row := at + int(said[1])) < upto:
                return row
        return (at + upto) // 2

    def _starts_of(self, count: int) -> pa.BinaryArray:
        if len(self._starts) < count:
            self._starts = pa.array([b'{"r":%d,"p":[' % row for row in range(count)], pa.binary())
        return self._starts.slice(0, count)


def _text(rows: pa.BinaryArray, at: int, upto: int) -> pa.BufferReader:
    """The rows as a text that is contiguous in memory."""
    offsets = np.frombuffer(rows.buffers()[1], np.int32)
    start = int(offsets[rows.offset + at])
    return pa.BufferReader(rows.buffers()[2].slice(start, int(offsets[rows.offset + upto]) - start))


def _are_text(data: pa.BinaryArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether each is UTF-8, which the parser does not check."""
    try:
        data.cast(pa.string())
        return np.ones(len(data), np.bool_)
    except pa.ArrowInvalid:
        return np.array([_is_text(each) for each in data.to_pylist()], np.bool_)


def _is_text(given: bytes) -> bool:
    try:
        given.decode()
        return True
    except UnicodeDecodeError:
        return False


def _first_bytes(data: pa.BinaryArray) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The first byte of each text; undefined for an empty text."""
    content = data.buffers()[2]
    if content is None or not content.size:
        return np.zeros(len(data), np.uint8)
    offsets = np.frombuffer(data.buffers()[1], np.int32)[data.offset : data.offset + len(data)]
    first: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(content, np.uint8)[np.minimum(offsets, content.size - 1)]
    return first


def _column(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).combine_chunks()


def _are_single(values: pa.ListArray) -> bool:
    return np.array_equal(values.value_lengths(), np.ones(len(values)))


def _are_numbers(values: pa.Array) -> bool:
    """Whether each number field is valid: the parser accepts NaN and Infinity, and values too large for a float."""
    if pa.types.is_floating(values.type):
        return bool(pc.all(pc.is_finite(values), min_count=0).as_py())
    if pa.types.is_struct(values.type):
        return all(_are_numbers(each) for each in values.flatten())
    return not pa.types.is_list(values.type) or _are_numbers(values.flatten())


def _parsing(type: pa.StructType, unit: str) -> pj.ParseOptions:
    read_as = pa.schema([("r", pa.int32()), ("p", pa.list_(_as_read(type, unit)))])
    return pj.ParseOptions(explicit_schema=read_as, unexpected_field_behavior="ignore")


def _as_read(type: pa.DataType, unit: str) -> pa.DataType:
    """The type for the parser. Dates are parsed as text and cast afterwards; times have that unit."""
    if pa.types.is_date(type):
        return pa.string()
    if pa.types.is_timestamp(type):
        return pa.timestamp(unit, type.tz)
    if pa.types.is_struct(type):
        return pa.struct([pa.field(field.name, _as_read(field.type, unit)) for field in type])
    if pa.types.is_list(type):
        return pa.list_(pa.field(type.value_field.name, _as_read(type.value_type, unit)))
    return type
