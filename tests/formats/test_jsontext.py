"""JSON from outside: what is wrong with it, and where."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import InvalidInput
from headwater.formats.jsontext import MalformedJson, check_utf8, decode


class Shape(msgspec.Struct):
    a: list[int]


DECODER = msgspec.json.Decoder(Shape)


@pytest.mark.parametrize(("text", "line", "column"), [
    (b'{"a": [1,\n 2,, 3]}', 2, 4), (b"", 1, 1), (b'{"a":[1', 1, 8),
])  # fmt: skip
def test_malformed_json_says_line_and_column(text, line, column):
    with pytest.raises(MalformedJson, match=f"line {line}, column {column}") as caught:
        decode(DECODER, text)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    ("text", "column"), [(b'{"a":"\\ud800"}', 7), (b'["\\\\\\uD83Dx"]', 5), (b'{"\\udBff\\u0041":1}', 3)]
)
def test_half_of_a_surrogate_pair_is_named_and_placed(text, column):
    with pytest.raises(MalformedJson, match=r"a string contains half of a surrogate pair, \\u[dD]") as caught:
        decode(msgspec.json.Decoder(), text)
    assert caught.value.column == column


def test_a_text_that_is_cut_is_truncated():
    with pytest.raises(MalformedJson, match="input data was truncated"):
        decode(msgspec.json.Decoder(), b'["\\\\ud800')


@pytest.mark.parametrize(("text", "where"), [(b'{"a":[1,"x"]}', "a[1]"), (b"[]", ""), (b"{}", ""), (b'{"a":1}', "a")])
def test_misfit_says_its_path(text, where):
    with pytest.raises(InvalidInput) as caught:
        decode(DECODER, text)
    assert caught.value.where == where


def test_nesting_is_bounded():
    with pytest.raises(InvalidInput, match="nested too deeply"):
        decode(msgspec.json.Decoder(msgspec.Raw), b"[" * 100_000)


def test_bytes_that_are_not_utf8_are_placed():
    check_utf8("grün".encode())
    with pytest.raises(MalformedJson, match="line 2, column 3"):
        check_utf8(b"1\n23\xff")


@given(st.binary(max_size=100))
def test_any_bytes_give_a_value_or_a_documented_error(text):
    try:
        decode(DECODER, text)
    except InvalidInput as error:
        assert str(error)
