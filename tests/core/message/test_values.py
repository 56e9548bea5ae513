"""Values are looked through as the decoder reads them: one takes what the other does, but what is not common."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.amqp.protocol.codec import decode, encode
from headwater.amqp.protocol.types import Array, Described, Symbol, UInt
from headwater.core.message.values import WIDTHS, DecodeError, Uncommon, check_value, count_values, skip
from tests.amqp.values import values

CODES = [code for code, width in enumerate(WIDTHS) if width != -4]


def verdicts(buffer: bytes) -> tuple[int | None, int | None]:
    """Where the value ends, as the walk and as the decoder has it; None where it is refused, or is not common."""
    found: list[int | None] = []
    for read in (check_value, lambda *given: decode(*given)[1]):
        try:
            found.append(read(buffer, 0, len(buffer)))
        except Uncommon:
            return None, None
        except DecodeError as error:
            assert 0 <= error.at <= len(buffer)
            found.append(None)
    return found[0], found[1]


@settings(max_examples=200)
@given(values)
def test_a_value_that_was_encoded_is_taken(value: object) -> None:
    encoded = encode(value)
    assert verdicts(encoded) in ((len(encoded), len(encoded)), (None, None))
    assert skip(encoded, 0, len(encoded)) == len(encoded)
    count_values(encoded, 0, len(encoded), len(encoded) * 300)


@settings(max_examples=400)
@given(values, st.data())
def test_a_garbled_value_is_taken_and_refused_as_the_decoder_has_it(value: object, draw: st.DataObject) -> None:
    garbled = bytearray(encode(value))
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(garbled) - 1))
        garbled[at] = draw.draw(st.sampled_from(CODES) | st.integers(0, 255))
    found, expected = verdicts(bytes(garbled[: draw.draw(st.integers(0, len(garbled))) or len(garbled)]))
    assert found == expected


@settings(max_examples=400)
@given(st.lists(st.sampled_from([*CODES, 0, 1, 2, 3, 4, 0xFF, 0x61]), min_size=1, max_size=40).map(bytes))
def test_any_bytes_are_taken_and_refused_as_the_decoder_has_it(noise: bytes) -> None:
    found, expected = verdicts(noise)
    assert found == expected


KEYS = [
    1, UInt(1), True, 1.0, "a", Symbol("a"), b"a", None, False, 0, Described(1, 2), Described(1, UInt(2)), "1", -1,
    2**63, float("nan"), [], {}, Array([1]), Described([], 1), Described(1, []),
]  # fmt: skip


@pytest.mark.parametrize("first", KEYS, ids=repr)
def test_keys_that_readers_may_take_for_one_are_one(first: object) -> None:
    for second in KEYS:
        content = encode(Symbol("a") if second == 2**63 else second)
        buffer = encode(first) if first != 2**63 else b"\x80" + (2**63).to_bytes(8)
        entries = buffer + b"\x40" + content + b"\x40"
        found, expected = verdicts(b"\xc1" + bytes((len(entries) + 1, 4)) + entries)
        assert found == expected


@pytest.mark.parametrize("count", [64, 65])
def test_keys_that_collide_at_will_are_few(count: int) -> None:
    entries = b"".join(b"\x98" + number.to_bytes(16) + b"\x40" for number in range(count))
    content = b"\xd1" + (len(entries) + 4).to_bytes(4) + (2 * count).to_bytes(4) + entries
    assert verdicts(content) == ((len(content),) * 2 if count == 64 else (None, None))


@pytest.mark.parametrize("depth", [31, 32, 33])
@pytest.mark.parametrize("outer", [b"\xc0", b"\xc1"])
def test_the_depth_of_values_is_bounded(depth: int, outer: bytes) -> None:
    nested = b"\x45"
    for _ in range(depth):
        before = b"\x40" if outer == b"\xc1" else b""
        content = bytes((2 if before else 1,)) + before + nested
        nested = outer + bytes((len(content),)) + content
    found, expected = verdicts(nested)
    assert found == expected
    assert (found is None) == (depth > 32)
