"""AMQP values of every type: strategies that make them, and a comparison that minds the type."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

from headwater.amqp.protocol.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)


def _integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    edges = [number for number in (low, high, -129, -128, -1, 0, 1, 127, 128, 255, 256) if low <= number <= high]
    return st.integers(low, high) | st.sampled_from(edges)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.just("é" * 200)
symbols = (st.text(st.characters(max_codepoint=127), max_size=6) | st.just("s" * 300)).map(Symbol)
binaries = st.binary(max_size=6) | st.just(b"b" * 300)

by_type: list[st.SearchStrategy[Any]] = [
    st.booleans(),
    _integers(8, False).map(UByte),
    _integers(16, False).map(UShort),
    _integers(32, False).map(UInt),
    _integers(64, False).map(ULong),
    _integers(8, True).map(Byte),
    _integers(16, True).map(Short),
    _integers(32, True).map(Int),
    _integers(64, True).map(Long),
    _integers(64, True).map(Timestamp),
    st.floats(width=32, allow_nan=False).map(Float),
    st.floats(),
    st.characters(exclude_categories=["Cs"]).map(Char),
    st.uuids(),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
    binaries,
    texts,
    symbols,
]
"""One strategy for every primitive type but null."""

scalars = st.none() | st.one_of(by_type)
descriptors = symbols | _integers(64, False).map(ULong)


def _compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=4)
    maps = st.dictionaries(scalars, inner, max_size=4)
    arrays = st.one_of([st.lists(one, min_size=1, max_size=4) for one in [*by_type, lists, maps]]).map(Array)
    described = st.builds(Described, descriptors, inner)
    arrays_of_described = st.builds(
        lambda descriptor, values: Array(Described(descriptor, value) for value in values), descriptors, arrays
    )
    arrays_of_arrays = st.lists(arrays, min_size=1, max_size=3).map(Array)
    return lists | maps | arrays | described | arrays_of_described | arrays_of_arrays


values = st.recursive(scalars, _compound, max_leaves=12)
"""Values of any type, nested."""


def same(one: Any, other: Any) -> bool:
    """Are they equal, and of the same types all through? Floats are compared by their bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack(">d", one) == struct.pack(">d", other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same([*one.keys(), *one.values()], [*other.keys(), *other.values()])
    if isinstance(one, Described):
        return same(one.descriptor, other.descriptor) and same(one.value, other.value)
    return bool(one == other)
