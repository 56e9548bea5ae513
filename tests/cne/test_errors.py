"""Every error of the core has an answer, and no caller's error is the server's."""

from __future__ import annotations

from headwater.cne import errors as table
from headwater.core import access
from headwater.core import errors as core


def test_refusal_says_what_and_where():
    refused = table.refusal_of(core.InvalidEvent("a value is required", "data.values[0].value"))
    assert refused is not None
    assert refused.to_json() == b'{"error":"a value is required","path":"$.data.values[0].value"}'
    assert refused.to_header() == (b"headwater-problem", b"$.data.values[0].value: a value is required")


def test_reason_in_a_header_cannot_break_out_of_it():
    assert table.RequestRefused(400, "a\r\nset-cookie: b\x00ü").to_header()[1] == b"a??set-cookie: b??"


def test_wrong_credentials_are_challenged():
    refused = table.refusal_of(access.Unauthenticated("no"))
    assert refused is not None and dict(refused.headers)[b"www-authenticate"]


def test_fault_of_ours_is_no_refusal():
    assert table.refusal_of(KeyError("x")) is None
