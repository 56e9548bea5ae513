"""Traces: which are well-formed, and which events get one."""

from __future__ import annotations

import pytest

from headwater.core import Event
from headwater.formats.tracing import TRACESTATE_CHARS_MAX, headers_of, trace_of, trace_of_headers, traced

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("given", [
    "", "00-x", PARENT.upper(), f"{PARENT}-", PARENT.replace("00-", "ff-", 1), PARENT[:-1], 7, None,
    "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
    "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
])  # fmt: skip
def test_what_is_not_well_formed_is_no_trace(given: object) -> None:
    assert trace_of(given, "a=1") == {}


def test_a_trace_has_a_parent_and_may_have_a_state() -> None:
    assert trace_of(PARENT) == {"traceparent": PARENT}
    assert trace_of(PARENT, "a=1,b=2") == {"traceparent": PARENT, "tracestate": "a=1,b=2"}
    for wrong in ("", "a=1\n", "a" * (TRACESTATE_CHARS_MAX + 1), 7):
        assert trace_of(PARENT, wrong) == {"traceparent": PARENT}
    assert headers_of({"traceparent": PARENT, "tracestate": "a=1", "time": "x"}) == trace_of(PARENT, "a=1")
    assert headers_of({"traceparent": "evil\r\nx: y"}) == {}


def test_header_fields_name_a_trace_once() -> None:
    parent = (b"traceparent", PARENT.encode())
    found = trace_of_headers([(b"host", b"x"), parent, (b"tracestate", b"a=1"), (b"tracestate", b" b=2")])
    assert found == {"traceparent": PARENT, "tracestate": "a=1,b=2"}
    assert trace_of_headers([parent, parent]) == {} == trace_of_headers([(b"tracestate", b"a=1")])


def test_an_event_keeps_the_trace_that_it_has() -> None:
    own, none = Event("A", attributes={"traceparent": "00-own"}), Event("B", attributes={"time": "t"})
    assert traced([own, none], {}) == [own, none]
    first, second = traced([own, none], trace_of(PARENT, "a=1"))
    assert first == own
    assert second.attributes == {"time": "t", "traceparent": PARENT, "tracestate": "a=1"}
