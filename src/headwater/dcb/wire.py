"""The JSON that this front end accepts and sends, field by field, in every accepted spelling.

This module contains only shapes. The meaning of the fields is in `queries` (queries and conditions) and `events`;
`openapi.yaml` documents the same shapes. Unknown fields are errors, so that a misspelt one is never ignored.
"""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from ..core.event import Event
from ..core.extent import SegmentInfo

ARROW = "application/vnd.apache.arrow.stream"
"""`formats.arrow.tables.STREAM`, without loading Arrow."""


class TagPair(Struct, forbid_unknown_fields=True, gc=False):
    """A tag as an object, in the form written by the first PHP implementation of the seed."""

    key: str
    value: str | None = None


class EventIn(Struct, forbid_unknown_fields=True):
    """An event to append."""

    type: str
    data: str | None = None
    data_base64: bytes | None = None
    tags: list[str | TagPair] = []
    id: str | None = None
    source: str | None = None
    attributes: dict[str, str] | None = None
    group_key: str | None = None
    envelope_base64: bytes | None = None
    encoding: str | None = None


class CriterionProperties(Struct, forbid_unknown_fields=True):
    """The `properties` of a criterion of the seed."""

    event_types: list[str] | None = None
    event_types_camel: list[str] | None = field(default=None, name="eventTypes")
    types: list[str] | None = None
    tags: list[str | TagPair] | None = None
    exact_tags: list[str | TagPair] | None = None


class ItemIn(CriterionProperties, forbid_unknown_fields=True):
    """One alternative of a query: a criterion of the seed (`type`, `properties`), or an item of today's form."""

    type: str | None = None
    properties: CriterionProperties | None = None


class QueryIn(Struct, forbid_unknown_fields=True):
    """A query in the seed's form (`criteria`), in today's form (`items`), or `all`.

    null is not accepted for a missing list: a query must not match every event by accident.
    """

    all: bool | UnsetType = UNSET
    items: list[ItemIn] | UnsetType = UNSET
    criteria: list[ItemIn] | UnsetType = UNSET
    criterias: list[ItemIn] | UnsetType = UNSET
    version: str | UnsetType = UNSET


class ConditionIn(Struct, forbid_unknown_fields=True):
    """An append condition in the seed's form (`query`, `expected_highest_sequence_number`) or in today's form."""

    query: QueryIn | str | None = None
    expected_highest_sequence_number: int | str | None = None
    expected_highest_sequence_number_camel: int | str | None = field(default=None, name="expectedHighestSequenceNumber")
    fail_if_events_match: QueryIn | str | None = None
    fail_if_events_match_camel: QueryIn | str | None = field(default=None, name="failIfEventsMatch")
    after: int | None = None


class AppendIn(Struct, forbid_unknown_fields=True):
    """The body of an append."""

    events: list[EventIn]
    condition: ConditionIn | None = None
    partition: int | None = None
    strict: bool | None = None


class PackedAppendIn(Struct, forbid_unknown_fields=True):
    """The body of an append in MessagePack, with events as arrays (`formats.packed`)."""

    events: list[Event]
    condition: ConditionIn | None = None
    partition: int | None = None
    strict: bool | None = None


class ReadIn(Struct, forbid_unknown_fields=True):
    """The body of a read."""

    query: QueryIn | str
    from_: int | None = field(default=None, name="from")
    after: int | None = None
    backwards: bool | None = None
    read_backwards: bool | None = None
    read_backwards_camel: bool | None = field(default=None, name="readBackwards")
    limit: int | None = None
    partition: int | None = None
    upto: int | None = None
    data_bytes_max: int | None = None


class CountIn(Struct, forbid_unknown_fields=True):
    """The body of a count."""

    query: QueryIn | str
    from_: int | None = field(default=None, name="from")
    after: int | None = None
    upto: int | None = None
    partition: int | None = None
    by_type: bool | None = None


class HistogramIn(Struct, forbid_unknown_fields=True):
    """The body of a histogram."""

    query: QueryIn | str
    recorded_from: int | None = None
    recorded_before: int | None = None
    buckets: int | None = None
    partition: int | None = None
    by_type: bool | None = None
    types_max: int | None = None


class EventHistogramIn(Struct, forbid_unknown_fields=True):
    """The body of a histogram by the events' own times."""

    query: QueryIn | str
    event_from: int | None = None
    event_before: int | None = None
    buckets: int | None = None
    partition: int | None = None
    by_type: bool | None = None
    types_max: int | None = None


class RegisterIn(Struct, forbid_unknown_fields=True):
    """The body of a consumer's registration."""

    after: int | None = None


class AcknowledgeIn(Struct, forbid_unknown_fields=True):
    """The body of an acknowledgement."""

    sequence_number: int
    epoch: int | None = None


class ResetIn(Struct, forbid_unknown_fields=True):
    """The body of a consumer's reset."""

    after: int


class BeatIn(Struct, forbid_unknown_fields=True):
    """The body of a worker's beat."""

    lease_ms: int = 10_000
    wait_ms: int = 0
    version: int | None = None
    start: Literal["earliest", "latest"] | None = None


class DoneIn(Struct, forbid_unknown_fields=True):
    """The body of a worker's acknowledgement."""

    partition: int
    epoch: int
    sequence_number: int
    gives_up: bool = False


class PartitionOut(Struct):
    """A partition that a worker holds."""

    partition: int
    epoch: int
    after: int
    is_leaving: bool


class HoldingOut(Struct):
    """The partitions that a worker holds."""

    version: int
    partitions: list[PartitionOut]


class TrimIn(Struct, forbid_unknown_fields=True):
    """The body of a trim."""

    below: int
    dry_run: bool | None = None


class SuiteEventIn(Struct):
    """An event as the benchmark suite of dcb.events sends it; further fields are ignored."""

    type: str
    tags: list[str] = []
    data: str = ""


class SuiteAppendIn(Struct):
    """An append as the benchmark suite of dcb.events sends it."""

    events: list[SuiteEventIn]
    condition: ConditionIn | None = None


class SuiteOptionsIn(Struct):
    """Read options as the benchmark suite of dcb.events sends them."""

    from_: int | None = field(default=None, name="from")
    limit: int | None = None
    backwards: bool = False


class AppendOut(Struct, gc=False):
    """The answer to an append: the seed's last appended SequenceNumber, and further facts."""

    sequence_number: int
    first_sequence_number: int
    was_stored: bool


class HeadOut(Struct, gc=False):
    """The end of a log."""

    head: int
    incarnation: str


class CountOut(Struct, omit_defaults=True, gc=False):
    """The number of matching events."""

    events: int
    upto: int
    is_complete: bool
    head: int
    incarnation: str
    types: dict[str, int] | UnsetType = UNSET
    other_types: int | UnsetType = UNSET


class SegmentsOut(Struct, omit_defaults=True):
    """Segments, oldest first; `after` is set if there are more."""

    segments: list[SegmentInfo]
    first_retained: int
    head: int
    incarnation: str
    after: int | None = None


class HeldOut(Struct, gc=False):
    """A consumer that holds back a trim, and the events that it holds."""

    owner: str
    component: str
    acknowledged: int
    seen_at: int
    events: int
    bytes: int


class ForeseenTrimOut(Struct):
    """What a trim would do."""

    first_retained: int
    events: int
    bytes: int
    freed_segments: int
    freed_bytes: int
    held_back_by: int
    held_back: list[HeldOut]


class TermOut(Struct, gc=False):
    """A term, and the number of retained events that have it."""

    term: str
    events: int


class TermsOut(Struct, omit_defaults=True):
    """Terms in order; `after` is set if there are more."""

    terms: list[TermOut]
    is_complete: bool
    head: int
    incarnation: str
    after: str | None = None


class PositionOut(Struct, gc=False):
    """The sequence number for a time."""

    sequence_number: int
    head: int
    incarnation: str


class BucketOut(Struct, omit_defaults=True, gc=False):
    """The events of one time bucket."""

    recorded_from: int
    first: int
    events: int
    types: dict[str, int] | UnsetType = UNSET


class HistogramOut(Struct):
    """The number of matching events, by recording time."""

    recorded_from: int
    recorded_before: int
    buckets: list[BucketOut]
    is_complete: bool
    head: int
    incarnation: str


class EventBucketOut(Struct, omit_defaults=True, gc=False):
    """The events that happened in one time bucket."""

    event_from: int
    events: int
    types: dict[str, int] | UnsetType = UNSET


class EventHistogramOut(Struct):
    """The number of matching events, by their own times; covers `first` to `upto`, in which `events` match."""

    event_from: int
    event_before: int
    buckets: list[EventBucketOut]
    events: int
    first: int
    upto: int
    is_complete: bool
    head: int
    incarnation: str


class EventOut(Struct, omit_defaults=True, gc=False):
    """An event in the seed's form; fields that the seed lacks are left out when they have defaults."""

    id: str
    type: str
    data: str | UnsetType
    tags: tuple[str, ...]
    data_base64: bytes | UnsetType = UNSET
    source: str = ""
    attributes: dict[str, str] | UnsetType = UNSET
    group_key: str = ""
    envelope_base64: bytes | UnsetType = UNSET
    encoding: str = "data"


class PreviewOut(EventOut, kw_only=True, omit_defaults=True, gc=False):
    """An event whose data may be truncated; only the size of its envelope is given."""

    data_bytes: int
    envelope_bytes: int = 0


class EnvelopeOut(Struct, omit_defaults=True, gc=False):
    """The seed's EventEnvelope."""

    event: EventOut
    sequence_number: int
    recorded_at: int
    partition: int | UnsetType = UNSET


class SuiteEventOut(Struct, omit_defaults=True, gc=False):
    """A sequenced event as the benchmark suite of dcb.events expects it."""

    type: str
    tags: tuple[str, ...]
    data: str | UnsetType
    position: int
    data_base64: bytes | UnsetType = UNSET


class SuiteAppendOut(Struct, omit_defaults=True, gc=False):
    """The answer to an append that the benchmark suite of dcb.events expects, whether or not its condition held."""

    durationInMicroseconds: int
    appendConditionFailed: bool
    position: int | UnsetType = UNSET
