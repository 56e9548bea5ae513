"""Message authentication codes: the base, its numbers, the algorithms."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.futoin.messages.signatures import ALGORITHMS, LEGACY_ALGORITHMS, Signature, base, number

KEY = b"0123456789abcdef"
REQUEST = {
    "f": "futoin.evt.gen:1.1:addEvent",
    "p": {"type": "ORDER_NEW", "data": {"b": [1, "x"], "a": 1.5, "3": True, "n": None}},
    "sec": "left out",
}


def test_the_base_of_the_test_vector() -> None:
    request = {**REQUEST, "p": {"type": "ORDER_NEW", "data": {"b": [1, "x", None, True], "a": 1.5}}}
    expected = b"f:futoin.evt.gen:1.1:addEvent;p:data:a:1.5;b:0:1;1:x;3:true;;;type:ORDER_NEW;;"
    assert base(request) == expected
    code = Signature(LEGACY_ALGORITHMS["SHA256"], KEY).of(request)
    assert code == "cu/QefAfrqPhcm0UG+D0ulj6zODbe4tom7VjLq6RGbA="


def test_the_reply_of_the_test_vector() -> None:
    assert base({"r": "3868"}) == b"r:3868;"
    code = Signature(ALGORITHMS["HS256"], KEY).of({"r": "3868", "sec": "x"})
    assert code == "whM17kH+RcV7MYeIh25mv8WRgLo+Yl4pkceH7/7ysxc="


def test_keys_of_arrays_are_ordered_as_text() -> None:
    assert base({"a": list(range(11))}).startswith(b"a:0:0;1:1;10:10;2:2;")


def test_members_are_ordered_by_their_code_units() -> None:
    assert base({"b": 1, "a": 2, "B": 3}) == b"B:3;a:2;b:1;"
    names = ["b", "a", "\uffff", "\U00010000", "\u00e9"]
    ordered = ["a", "b", "\u00e9", "\U00010000", "\uffff"]  # a surrogate comes before U+FFFF
    assert base(dict.fromkeys(names, 1)) == b"".join(f"{name}:1;".encode() for name in ordered)


def test_nulls_are_left_out_and_empty_subtrees_are_not() -> None:
    assert base({"a": None, "b": {}, "c": [], "d": False, "e": b"\x00"}) == b"b:;c:;d:false;e:\x00;"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"), (-0.0, "0"), (1e20, "100000000000000000000"), (1e21, "1e+21"), (1.5e300, "1.5e+300"), 
        (1e-6, "0.000001"),
        (1e-7, "1e-7"), (1.25e-10, "1.25e-10"), (123456789012345680000.0, "123456789012345680000"), (-2.5, "-2.5"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_javascript_writes_them(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_javascript_agrees() -> None:
    values = [x * 10.0**y for x in (1, 1.5, 123456789.123, 9.999999999999999, 0.1 + 0.2) for y in range(-30, 31)]
    script = "console.log(JSON.stringify(JSON.parse(process.argv[1]).map(String)))"
    done = subprocess.run(["node", "-e", script, json.dumps(values)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == list(map(number, values))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_say_what_they_are(value: float) -> None:
    assert float(number(value)) == value


def test_every_algorithm_has_codes_of_its_own_and_of_its_length() -> None:
    lengths = {"MD5": 16, "SHA224": 28, "SHA256": 32, "SHA384": 48, "SHA512": 64}
    lengths |= {"HMD5": 16, "HS256": 32, "HS384": 48, "HS512": 64, "KMAC128": 32, "KMAC256": 64}
    for name, mac in {**LEGACY_ALGORITHMS, **ALGORITHMS}.items():
        code = base64.b64decode(Signature(mac, 2 * KEY).of(REQUEST))
        assert len(code) == lengths[name]
        assert code != base64.b64decode(Signature(mac, 3 * KEY).of(REQUEST))


def test_kmac_is_that_of_the_standard() -> None:
    """SP 800-185, KMAC samples 1 (128 bits) and, without its customization string, of the right lengths."""
    key, data = bytes(range(0x40, 0x60)), bytes([0, 1, 2, 3])
    expected = "E5780B0D3EA6F7D3A429C5706AA43A00FADBD7D49628839E3187243F456EE14E"
    assert ALGORITHMS["KMAC128"](key, data).hex().upper() == expected
