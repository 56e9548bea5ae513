"""Hypothesis strategies that the tests of several rooms share."""

from hypothesis import strategies as st

from headwater.core import Encoding, SequencedEvent

from .builders import as_message

stored_events = st.builds(
    SequencedEvent,
    sequence_number=st.integers(1, 10**18 - 1),
    recorded_at=st.integers(0, 2**45),
    partition=st.integers(0, 1023),
    type=st.sampled_from(["OrderPlaced", "Größe"]),
    data=st.binary(max_size=20) | st.text(max_size=20).map(str.encode),
    tags=st.lists(st.sampled_from(["a:1", "b", "c:2"]), unique=True).map(sorted).map(tuple),
    id=st.uuids().map(str),
    source=st.sampled_from(["", "shop"]),
    attributes=st.dictionaries(st.sampled_from(["comment", "tenant"]), st.text("ab é", max_size=3)),
    group_key=st.sampled_from(["", "g"]),
    envelope=st.binary(max_size=3),
    encoding=st.sampled_from(Encoding),
).map(as_message)
"""Events with something, or nothing, in any field."""
