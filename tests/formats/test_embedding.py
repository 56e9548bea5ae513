"""Which payloads stand in JSON documents as they are: the same ones in CloudEvents and FutoIn, short and long."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.core import Event, SequencedEvent
from headwater.formats.cloudevents import STRUCTURED, event_to_json
from headwater.formats.embedding import DEPTH_MAX, is_embeddable
from headwater.futoin.functions.events import data_of
from tests.every import every

LONG = b'"%b"' % (b"y" * 20_000)
LONG_ESCAPED = b'"%b e999 \\"1e999"' % (b"\\\\" * 20_000)
REFUSED = [
    b'"\\ud83d"', b'"\\ude00\\ud83d"', b'"\\\\\\ud83d"', b'{"\\ud800":1}', b'"\xff"', b'"\\uZZ00"', b'"\\q"',
    b"1e400", b"1e999", b"-1E+0309", b"1.8e308", b"9" * 309, b"9" * 400, b"-" + b"9" * 400, b"9" * 5000,
    b"1" * 250 + b"e99", b"1" * 211 + b"E+99", b"NaN", b"[" * 100_000, b"01",
]  # fmt: skip
TAKEN = [
    b'"\\ud83d\\ude00"', b'"\\\\ud83d"', b"1e99", b"1e300", b"1.7e308", b"1e-400", b"0." + b"0" * 400 + b"1", b"9" * 20,
    b"9" * 308, b"1" * 310 + b"e-100", b'"1e999"', b'{"e999":1}', b'{"a":1,"a":2}', b'"\xef\xbf\xbf"', b" 1 ",
]  # fmt: skip


def stored(data: bytes, **fields: Any) -> SequencedEvent:
    return SequencedEvent(7, 0, 0, *Event("T", data, (), "1", "/s", **fields))


@every("before", [b"0", LONG, LONG_ESCAPED])
@every("value", REFUSED)
def test_what_some_parser_refuses_goes_as_base64_everywhere(before: bytes, value: bytes) -> None:
    data = b"[%b,%b]" % (before, value)
    assert not is_embeddable(data)
    event = stored(data)
    assert set(json.loads(data_of(event))) == {"data_base64"}
    members = json.loads(event_to_json(event, "/x"))
    assert "data_base64" in members
    assert "data" not in members


@every("before", [b"0", LONG, LONG_ESCAPED])
@every("value", TAKEN)
def test_what_every_parser_reads_stands_as_it_is_everywhere(before: bytes, value: bytes) -> None:
    data = b"[%b,%b]" % (before, value)
    assert is_embeddable(data)
    event = stored(data)
    assert data_of(event) == data
    assert b'"data":%b' % data in event_to_json(event, "/x")


@pytest.mark.parametrize("value", [b"1e400", b"9" * 400])
def test_a_document_that_came_as_amqp_message_has_such_data_as_base64(value: bytes) -> None:
    document = b'{"specversion":"1.0","id":"1","source":"/s","type":"T","data":%b}' % value
    event = stored(document, attributes={"datacontenttype": STRUCTURED}, envelope=b"\x00")
    members = json.loads(event_to_json(event, "/x"))
    assert "data" not in members
    assert "datacontenttype" not in members
    assert base64.b64decode(members["data_base64"]) == value


def test_a_document_with_half_a_surrogate_pair_is_no_document() -> None:
    document = b'{"specversion":"1.0","id":"1","source":"/s","type":"T","data":"\\ud800"}'
    event = stored(document, attributes={"datacontenttype": STRUCTURED}, envelope=b"\x00")
    members = json.loads(event_to_json(event, "/x"))
    assert base64.b64decode(members["data_base64"]) == document


@given(st.binary(max_size=40) | st.text('[]{},:" \\udD8c0123456789eE+-.ntrfalsu', max_size=60).map(str.encode))
@example(b'"\\uD834\\udd1e"')
@example(b"[1e+0000000000001]")
def test_agrees_with_a_strict_parser(text: bytes) -> None:
    assert is_embeddable(text) is is_strict(text)


@given(st.binary(max_size=40) | st.text('[]{},:" \\udD8c0123456789eE+-.ntrfalsu', max_size=60).map(str.encode))
@example(b'["\\uD834\\udd1e","\\uD834"]')
@example(b"[1e+0000000000001]")
@example(b'{"3e400":"1e400 1e400,","-":-1E400}')
def test_long_texts_are_judged_as_short_ones_are(text: bytes) -> None:
    assert is_embeddable(text + b" " * 309) is is_embeddable(text)


@every(
    "text",
    [
        b'"%b"' % text
        for text in (b"0f1e3091-0e400", b"page400, 1e400,", b"e0e000e999 ", b"1e400" * 9_000, b"e999,1" * 9_000)
    ],
)
def test_what_only_looks_like_a_large_number_stands_as_it_is(text: bytes) -> None:
    number = b'{"id":%b,"n":%%b}' % text.ljust(310)
    assert is_embeddable(number % b"1e300")
    assert not is_embeddable(number % b"1e400")
    assert not is_embeddable(number % (b"1" * 400))


def nested(depth: int, before: bytes = b"") -> bytes:
    """Lists and objects inside each other, with brackets in texts that do not count."""
    pairs = [(b'{"]":', b"}") if level % 2 else (b'["[[{{",', b"]") for level in range(depth)]
    return before + b"".join(a for a, _ in pairs) + b'"\\\\ \\"[[[\\" "' + b"".join(z for _, z in pairs[::-1])


@every("filling", [b"", b" " * 400, b" " * 20_000])
@every("depth", [1, DEPTH_MAX - 1, DEPTH_MAX, DEPTH_MAX + 1, 200, 970, 2_000])
def test_what_is_nested_deeper_than_every_parser_reads_goes_as_base64(filling: bytes, depth: int) -> None:
    """Also where Python's own stack would have room for it: that depends on who calls."""
    assert is_embeddable(nested(depth) + filling) is (depth <= DEPTH_MAX)
    assert is_embeddable(b"[" * depth + b"]" * depth + filling) is (depth <= DEPTH_MAX)
    many = b"[%b,%b]" % (b",".join([b"[]"] * 200), nested(depth))
    assert is_embeddable(many) is (depth < DEPTH_MAX)


def test_a_batch_with_the_deepest_payload_has_64_levels_at_most() -> None:
    event = stored(nested(DEPTH_MAX))
    for text in (b"[%b]" % event_to_json(event, "/x"), b'{"r":{"events":[{"data":%b}]}}' % data_of(event)):
        assert b"data_base64" not in text
        assert depth_of(json.loads(text)) <= 64


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth_of, inner)) if inner else int(isinstance(value, dict | list))


JSON_VALUES = st.recursive(
    st.none()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["\\", '"', "[[", "1e400 ", "]"]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
NUMBERS = st.from_regex(r"-?[1-9][0-9]{0,400}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,5})?", fullmatch=True)


@given(JSON_VALUES.map(json.dumps), st.lists(NUMBERS, max_size=3), st.sampled_from([0, 310]))
@example('"' + "9" * 500 + '"', [], 0)
@example("0", ["1" * 400], 310)
@example("0", ["1" * 190 + "e99"], 310)
def test_large_numbers_are_found_among_other_values(value: str, numbers: list[str], before: int) -> None:
    text = (" " * before + f"[{','.join([value, *numbers])}]").encode()
    assert is_embeddable(text) is is_strict(text)


def is_strict(text: bytes) -> bool:
    """Whether the standard library reads it, and can write what it read as UTF-8 with finite numbers."""
    try:
        value = json.loads(text.decode(), parse_int=finite, parse_float=finite, parse_constant=float.fromhex)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return text[:1] != b"\xef"


def finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
