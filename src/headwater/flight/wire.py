"""The JSON of the bulk protocol, field by field: tickets, commands, actions and their answers.

docs/reference/flight.md documents it. Unknown fields are errors, so that a misspelt one is never ignored. Only shapes
are checked here; the server checks the values against the log.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ..core.access import Right
from ..core.condition import AppendCondition
from ..core.consumer import Consumer
from ..core.errors import InvalidInput, InvalidQuery, TooLarge
from ..core.extent import Extent
from ..core.limits import PARTITIONS_MAX, SEQUENCE_NUMBER_MAX
from ..core.log import LogInfo
from ..core.mark import Committed, WriterState
from ..core.query import ALL, Query, QueryItem
from ..core.settings import LogSettings
from ..core.streams import STREAM_CHARS_MAX
from ..formats import jsontext
from ..formats.decoders import json_decoder
from ..formats.querytext import parse_query
from ..formats.settings.logs import SettingsJson, named_settings

COMMAND_BYTES_MAX = 1024 * 1024
"""The largest ticket, command or action body that is read."""
SPLIT_BYTES = 64 * 1024 * 1024
"""The approximate default size of a split."""
SPLITS_MAX = 100_000
STAGES_MAX = 100_000
HEADS_MAX = 1000
"""The maximum number of logs per request for heads."""

PARTITION_MAX = PARTITIONS_MAX - 1
QUERY_CHARS_MAX = 64 * 1024
"""The longest query in text form."""

Number = Annotated[int, Meta(ge=0, le=SEQUENCE_NUMBER_MAX)]
Counter = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Partition = Annotated[int, Meta(ge=0, le=PARTITION_MAX)]
QueryText = Annotated[str, Meta(max_length=QUERY_CHARS_MAX)]
WriterName = Annotated[str, Meta(min_length=1, max_length=256)]
ShortName = Annotated[str, Meta(max_length=1024)]
"""The longest name that is cached as it was sent. No log and no incarnation has a longer one."""
OnDuplicate = Literal["fail", "skip"]
"""What to do if event ids are already stored: refuse the append, or leave those events out."""
T = TypeVar("T")
Body = TypeVar("Body")
Answer = TypeVar("Answer")


class Asked(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """Base of everything that a client sends."""


class Answered(Struct, frozen=True):
    """Base of everything that the server sends. Clients ignore unknown fields."""


class QueryItemJson(Asked, frozen=True):
    """(any of `types`) and (all of `tags` and `exact_tags`); see core.query.QueryItem."""

    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    exact_tags: tuple[str, ...] = ()


class QueryJson(Asked, frozen=True):
    """A query as an object: any of `items`, or `{"all": true}`."""

    items: tuple[QueryItemJson, ...] | UnsetType = UNSET
    all: Literal[True] | UnsetType = UNSET


class ConditionJson(Asked, frozen=True):
    """See core.condition.AppendCondition."""

    fail_if_events_match: QueryJson | QueryText
    after: Number = 0
    requires_match: bool = False


class Ticket(Asked, frozen=True):
    """A read request: the events of a log in (after, upto] that match the query and the partition."""

    log: str
    after: Number | None = None
    """None to start with the first retained event."""
    upto: Number | None = None
    """None for the head at the time of the call."""
    partition: Partition | None = None
    query: QueryJson | QueryText | None = None
    """None: every event. For the text form see `formats.querytext`: "type=OrderPlaced tag=order:17"."""
    columns: tuple[str, ...] | None = None
    """In output order. None: all."""
    incarnation: str | None = None
    """The request is refused unless the log (still) has this incarnation. None accepts any."""
    schema: Literal["spark"] | None = None
    """`spark`: recorded_at is in microseconds, and the first column is `log`."""
    compression: Literal["lz4", "zstd"] | None = None
    """Arrow's column compression of the batches sent. None: uncompressed. Older servers refuse anything else."""


class PlanCommand(Ticket, frozen=True):
    """A ticket to split into pieces of about `split_bytes`, and into at least `splits_min` if possible."""

    split_bytes: Annotated[int, Meta(ge=1, le=2**63 - 1)] = SPLIT_BYTES
    splits_min: Annotated[int, Meta(ge=1, le=SPLITS_MAX)] = 1

    @property
    def ticket(self) -> Ticket:
        """The unsplit ticket."""
        return Ticket(**{name: getattr(self, name) for name in Ticket.__struct_fields__})


class Split(NamedTuple):
    """A piece of a plan, for one reader."""

    ticket: Ticket
    events: int
    bytes: int


class AppendCommand(Asked, frozen=True):
    """A stream of batches to append, each as one append; with a condition, all of them as one."""

    log: str
    partition: Partition | None = None
    condition: ConditionJson | None = None
    on_duplicate: OnDuplicate = "fail"
    marks_end: bool = False
    """See StageCommand; only relevant with a condition."""


class StageCommand(Asked, frozen=True):
    """A stream of batches to stage durably, as one part of a writer's batch, until it is committed."""

    log: str
    writer: WriterName
    batch: Counter
    part: Counter
    attempt: Counter = 0
    marks_end: bool = False
    """Whether the stream ends with END as its metadata, and is discarded without it: Flight's clients end a stream
    normally even if the program that feeds it fails."""


class PutCommand(Asked, frozen=True):
    """The purpose of a `do_put`. Exactly one of the two is given."""

    append: AppendCommand | None = None
    stage: StageCommand | None = None


END = b'{"end":true}'
"""The metadata after the last batch, if the stream marks its end."""


class Appended(Answered, frozen=True):
    """The result for one batch: its events are numbered `first` to `last`; both are 0 if all were skipped."""

    first: int
    last: int
    was_stored: bool = False
    """Exactly these events had been appended before."""
    skipped: int = 0
    """Events left out because their ids are already stored."""


class Nothing(Asked, frozen=True):
    """An empty action body, and an empty answer."""


class LogBody(Asked, frozen=True):
    """An action on a log."""

    log: str


class HeadsBody(Asked, frozen=True):
    """Several logs."""

    logs: Annotated[tuple[ShortName, ...], Meta(max_length=HEADS_MAX)]


class SequenceNumberAtBody(Asked, frozen=True):
    """`recorded_at` in ms since 1970 UTC."""

    log: str
    recorded_at: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class CountBody(Asked, frozen=True):
    """Events of a log in (after, upto]."""

    log: str
    after: Number | None = None
    upto: Number | None = None
    partition: Partition | None = None


class CreateBody(Asked, frozen=True):
    """Without settings, the defaults, or the settings that the log already has."""

    log: str
    settings: SettingsJson | None = None


class TrimBody(Asked, frozen=True):
    """Events with numbers below `below` may be trimmed."""

    log: str
    below: Number


class ConsumerBody(Asked, frozen=True):
    """One consumer of a log."""

    log: str
    owner: str
    component: str


class RegisterBody(ConsumerBody, frozen=True):
    """A new consumer starts after `after`, by default at the head; a known one keeps its position.

    `drops_at_most` limits the events dropped because of it.
    """

    after: Number | None = None
    drops_at_most: int = 0


class UnregisterBody(ConsumerBody, frozen=True):
    """`drops_at_most`: the maximum number of events that it may drop."""

    drops_at_most: int = 0


class AcknowledgeBody(ConsumerBody, frozen=True):
    """Everything up to `sequence_number` has been processed."""

    sequence_number: Number = msgspec.field()
    epoch: Counter | None = None


class ReportBody(Asked, frozen=True):
    """The named stream has processed everything up to `position`."""

    log: str
    stream: Annotated[str, Meta(min_length=1, max_length=STREAM_CHARS_MAX)]
    position: Number


class WriterBody(Asked, frozen=True):
    """One writer of a log."""

    log: str
    writer: WriterName


class CommitBody(WriterBody, frozen=True):
    """The stages of a writer's batch, to append in that order, exactly once."""

    batch: Counter = msgspec.field()
    stages: Annotated[tuple[str, ...], Meta(max_length=STAGES_MAX)] = ()
    partition: Partition | None = None
    condition: ConditionJson | None = None
    on_duplicate: OnDuplicate = "fail"


class DiscardBody(WriterBody, frozen=True):
    """The stages of a writer's batch to discard."""

    batch: Counter = msgspec.field()
    gives_up: bool = False
    """Discard even if some of them are in the log already; a commit can then no longer continue."""


class LendBody(Asked, frozen=True):
    """Segments with the events in (after, upto], for a process of that operating system user."""

    log: ShortName
    after: Number
    upto: Number
    incarnation: ShortName
    uid: Annotated[int, Meta(ge=0, le=2**32 - 1)]


class LogNames(Answered, frozen=True):
    """The logs that the user may read."""

    logs: list[str]


class Heads(Answered, frozen=True):
    """The extent of each log; logs that do not exist or that the user may not read are left out."""

    heads: dict[str, Extent]


class SequenceNumber(Answered, frozen=True):
    """One number."""

    sequence_number: int


class Lender(Answered, frozen=True):
    """Where segments are lent, and the one-time code to present there, valid for some seconds."""

    socket: str = ""
    """Name of a Unix socket in Linux's abstract namespace; empty if nothing is lent."""
    code: str = ""


class EventCount(Answered, frozen=True):
    """A number of events."""

    events: int


class Trimmed(Answered, frozen=True):
    """The first retained event."""

    first_retained: int


class Consumers(Answered, frozen=True):
    """All consumers of a log."""

    consumers: list[Consumer]


class OneConsumer(Answered, frozen=True):
    """The requested consumer, if it is registered."""

    consumer: Consumer | None


class OneWriter(Answered, frozen=True):
    """The requested writer, if it has ever written."""

    writer: WriterState | None


class ActionShape(NamedTuple, Generic[Body, Answer]):
    """An action's body, its answer, and the right it needs."""

    name: str
    body: type[Body]
    answer: type[Answer]
    right: Right | None
    """The right on the log of the body. None: open to every user, who sees only what they may read."""
    is_idempotent: bool = True
    """Whether a client may retry it without having received the answer."""


LOGS = ActionShape("logs", Nothing, LogNames, None)
INFO = ActionShape("info", LogBody, LogInfo, Right.READ)
HEAD = ActionShape("head", LogBody, Extent, Right.READ)
HEADS = ActionShape("heads", HeadsBody, Heads, None)
SEQUENCE_NUMBER_AT = ActionShape("position_at", SequenceNumberAtBody, SequenceNumber, Right.READ)
COUNT = ActionShape("count", CountBody, EventCount, Right.READ)
LEND = ActionShape("lend", LendBody, Lender, Right.READ)
CREATE_LOG = ActionShape("create_log", CreateBody, LogInfo, Right.MANAGE)
TRIM = ActionShape("trim", TrimBody, Trimmed, Right.MANAGE)
CONSUMERS = ActionShape("consumers", LogBody, Consumers, Right.READ)
CONSUMER = ActionShape("consumer", ConsumerBody, OneConsumer, Right.READ)
REGISTER_CONSUMER = ActionShape("register_consumer", RegisterBody, Consumer, Right.MANAGE)
ACKNOWLEDGE = ActionShape("acknowledge", AcknowledgeBody, Consumer, Right.MANAGE)
UNREGISTER_CONSUMER = ActionShape("unregister_consumer", UnregisterBody, Nothing, Right.MANAGE, is_idempotent=False)
REPORT_POSITION = ActionShape("report_position", ReportBody, Nothing, Right.READ, is_idempotent=False)
"""Not retried on failure, because the next report supersedes it."""
WRITER = ActionShape("writer", WriterBody, OneWriter, Right.APPEND)
COMMIT = ActionShape("commit", CommitBody, Committed, Right.APPEND)
DISCARD = ActionShape("discard", DiscardBody, Nothing, Right.APPEND)
FORGET_WRITER = ActionShape("forget_writer", WriterBody, Nothing, Right.APPEND)

ACTIONS: dict[str, ActionShape[Any, Any]] = {
    shape.name: shape
    for shape in (
        LOGS, INFO, HEAD, HEADS, SEQUENCE_NUMBER_AT, COUNT, LEND, CREATE_LOG, TRIM, CONSUMERS, CONSUMER,
        REGISTER_CONSUMER, ACKNOWLEDGE, UNREGISTER_CONSUMER, REPORT_POSITION, WRITER, COMMIT, DISCARD, FORGET_WRITER,
    )
}  # fmt: skip
"""By name."""

_encoder = msgspec.json.Encoder()


def encode(value: object) -> bytes:
    """Encode any of these as JSON."""
    return _encoder.encode(value)


def check_size(text: Sized, what: str) -> None:
    """Raises TooLarge for text larger than any command or action body."""
    if len(text) > COMMAND_BYTES_MAX:
        raise TooLarge(len(text), COMMAND_BYTES_MAX, "bytes", what)


def decode(kind: type[T], text: bytes, what: str) -> T:
    """Decode JSON as one of these. Raises InvalidInput with the path of the invalid field below `what`, TooLarge."""
    check_size(text, what)
    try:
        given = jsontext.decode(json_decoder(kind), text)
    except InvalidInput as error:
        error.where = f"{what}.{error.where}" if error.where else what
        error.args = (f"{error.where}: {error.problem}",)
        raise
    return given


def query_of(given: QueryJson | str | None, where: str) -> Query:
    """The query of a request. Raises InvalidQuery with its path."""
    try:
        if given is None:
            return ALL
        if isinstance(given, str):
            return parse_query(given)
        if given.items is UNSET:
            if given.all is UNSET:
                raise InvalidQuery('expected {"items": [...]} or {"all": true}')
            return ALL
        if given.all is not UNSET:
            raise InvalidQuery("use `items` or `all`, not both")
        return Query.of(*(QueryItem(item.types, item.tags, item.exact_tags) for item in given.items))
    except InvalidQuery as error:
        below = error.where if error.where != "query" else ""
        raise InvalidQuery(error.problem, f"{where}.{below}" if below else where) from None


def query_json(query: Query) -> QueryJson | None:
    """The query as written in a ticket."""
    if query.items is None:
        return None
    return QueryJson(tuple(QueryItemJson(item.types, item.tags, item.exact_tags) for item in query.items))


def condition_of(given: ConditionJson | None) -> AppendCondition | None:
    """The condition of a request. Raises InvalidQuery."""
    if given is None:
        return None
    query = query_of(given.fail_if_events_match, "condition.fail_if_events_match")
    return AppendCondition(query, given.after, given.requires_match)


def condition_json(condition: AppendCondition | None) -> ConditionJson | None:
    """The condition as written in a command."""
    if condition is None:
        return None
    query = query_json(condition.fail_if_events_match) or QueryJson(all=True)
    return ConditionJson(query, condition.after, condition.requires_match)


def settings_of(given: SettingsJson | None) -> LogSettings | None:
    """The settings of a request; None if there are none. Raises InvalidSettings."""
    if given is None:
        return None
    return LogSettings(**named_settings(given))


def settings_json(settings: LogSettings | None) -> SettingsJson | None:
    """The settings as written in the body of `create_log`."""
    if settings is None:
        return None
    return SettingsJson(**{name: getattr(settings, name) for name in SettingsJson.__struct_fields__})
