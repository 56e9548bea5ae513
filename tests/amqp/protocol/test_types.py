"""The Python types that stand for AMQP's."""

from __future__ import annotations

import pytest

from headwater.amqp.protocol.types import Array, Described, Long, Symbol, UInt, ULong


def test_a_typed_value_is_what_python_would_have_in_its_place() -> None:
    assert UInt(7) == 7 == ULong(7)
    assert Symbol("a") == "a"
    assert {Symbol("a"): 1}["a"] == 1
    assert type(UInt(7) + 1) is int


def test_described_values_are_equal_by_descriptor_and_value() -> None:
    assert Described(ULong(1), "a") == Described(1, "a")
    assert Described(1, "a") != Described(2, "a")
    assert Described(1, "a") != Described(1, "b")
    assert Described(1, "a") != (1, "a")
    assert len({Described(1, "a"), Described(1, "a")}) == 1


def test_a_described_list_has_no_hash() -> None:
    with pytest.raises(TypeError):
        hash(Described(1, []))


def test_described_values_can_be_matched() -> None:
    match Described(Symbol("d"), 1):
        case Described("d", value):
            assert value == 1
        case other:
            raise AssertionError(other)


def test_an_array_is_a_list_that_knows_its_constructor() -> None:
    array = Array([Long(1)], 0x81)
    assert array == [1]
    assert array.constructor == 0x81
    assert Array().constructor is None
    assert repr(array) == "Array([1], 129)"
    assert repr(Described(1, 2)) == "Described(1, 2)"
