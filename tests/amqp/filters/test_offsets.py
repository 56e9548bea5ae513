"""Offsets: 20 digits, whose text order is log order; and any text as a bound between them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.amqp.filters import format_offset, parse_offset
from headwater.amqp.filters.comparisons import greatest_not_above
from headwater.amqp.protocol.types import Symbol

numbers = st.integers(1, 10**18 - 1) | st.integers(1, 30)
texts = st.text("0123456789", max_size=22) | st.text("0159/:a@", max_size=22) | st.text(max_size=21)


@given(numbers, numbers)
def test_text_order_is_log_order(one, other):
    assert (format_offset(one) < format_offset(other)) == (one < other)


@given(numbers)
def test_offset_is_a_symbol_of_20_digits_that_reads_back(number):
    offset = format_offset(number)
    assert type(offset) is Symbol and len(offset) == 20
    assert parse_offset(offset) == number


@pytest.mark.parametrize("text", ["", "17", "0" * 21, "0000000000000000001a", "-0000000000000000017", "٠" * 20])
def test_what_has_not_20_digits_is_no_offset(text):
    with pytest.raises(ValueError, match="20 decimal digits"):
        parse_offset(text)


@given(numbers, texts)
@example(17, "00000000000000000017")
@example(17, "000000000000000000170")
@example(17, "0000000000000000001")
def test_any_text_lies_between_two_numbers(number, text):
    below, is_equal = greatest_not_above(text)
    assert (format_offset(number) <= text) == (number <= below)
    assert is_equal == (below >= 0 and format_offset(below) == text)


@given(numbers)
def test_an_offset_is_its_own_bound(number):
    assert greatest_not_above(format_offset(number)) == (number, True)
