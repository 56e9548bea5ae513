import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import SequencedEvent
from headwater.formats.arrow import tables
from tests.strategies import stored_events


@given(st.lists(stored_events, max_size=4), st.integers(0, 4))
def test_events_survive_their_columns(events: list[SequencedEvent], skipped: int) -> None:
    batch = tables.record_batch(events)
    assert batch.schema.equals(tables.SCHEMA)
    assert tables.events_of(batch) == events
    assert tables.events_of(batch.slice(skipped)) == events[skipped:]


@given(st.lists(st.lists(stored_events, min_size=1, max_size=3), max_size=3))
def test_pages_between_opening_and_closing_are_a_stream(pages: list[list[SequencedEvent]]) -> None:
    stream = tables.OPENING + b"".join(map(tables.encode_page, pages)) + tables.CLOSING
    with pa.ipc.open_stream(stream) as reader:
        assert [tables.events_of(batch) for batch in reader] == pages
