"""The trace of an event or a request (W3C Trace Context), as in the CloudEvents extension.

An event keeps the trace that its producer gave it, in the attributes `traceparent` and `tracestate` (CloudEvents,
Distributed Tracing extension). If it has none, it gets the trace of the request that carried it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ..core.event import NO_ATTRIBUTES, Event

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
TRACESTATE_CHARS_MAX = 512
"""A longer one is left out (Trace Context, 3.3.1.5: at least this many are propagated)."""
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
_TRACESTATE = re.compile(r"[ -~]+", re.ASCII)


def trace_of(traceparent: object, tracestate: object = None) -> Mapping[str, str]:
    """The attributes of that trace; none if `traceparent` is malformed (3.2.2), which is then ignored (4.3)."""
    if not isinstance(traceparent, str) or not _TRACEPARENT.fullmatch(traceparent):
        return NO_ATTRIBUTES
    if isinstance(tracestate, str) and len(tracestate) <= TRACESTATE_CHARS_MAX and _TRACESTATE.fullmatch(tracestate):
        return {TRACEPARENT: traceparent, TRACESTATE: tracestate}
    return {TRACEPARENT: traceparent}


def trace_of_headers(headers: Iterable[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """The attributes of the trace in HTTP header fields (names in lower case)."""
    parent, states = None, []
    for name, value in headers:
        if name == b"traceparent":
            if parent is not None:
                return NO_ATTRIBUTES  # of two, neither is known to be right
            parent = value.decode("latin-1").strip()
        elif name == b"tracestate":
            states.append(value.decode("latin-1").strip())
    return NO_ATTRIBUTES if parent is None else trace_of(parent, ",".join(states))


def headers_of(attributes: Mapping[str, str]) -> Mapping[str, str]:
    """The header fields of a request made for an event with these attributes."""
    return trace_of(attributes.get(TRACEPARENT), attributes.get(TRACESTATE))


def traced(events: Sequence[Event], trace: Mapping[str, str]) -> Sequence[Event]:
    """The events, in that trace unless they have their own."""
    return events if not trace else [with_trace(event, trace) for event in events]


def with_trace(event: Event, trace: Mapping[str, str]) -> Event:
    """The event, in that trace unless it has its own."""
    if TRACEPARENT in event.attributes:
        return event
    return event._replace(attributes={**event.attributes, **trace})
