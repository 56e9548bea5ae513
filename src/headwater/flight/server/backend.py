"""What the server needs of the rest: the logs, the users, and a place for staged batches.

All calls may block, come from many threads at once, and raise the errors of `core.errors` and `core.access`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ...core.access import Credentials, Right, User
from ...core.extent import Extent, SplitSize
from ...core.mark import Staged
from ...core.query import Query
from ...core.settings import LogSettings
from ..wire import AppendCommand, Appended, LendBody, Lender, StageCommand, Ticket

if TYPE_CHECKING:
    import pyarrow as pa


class Login(NamedTuple):
    """Who was authenticated, and by what the backend knows whether that still counts."""

    user: User
    seal: str


class LogPlace(NamedTuple):
    """A log at one moment: how far it goes, by which settings, and where it lies."""

    extent: Extent
    settings: LogSettings
    directory: str = ""
    """Empty where it lies on no disk."""
    may_append: bool = True
    """Not at a replica: what is staged there, the primary could not commit."""
    distrusted: Sequence[tuple[int, int]] = ()
    """Events that are damaged on the disk. They are not read, though memory may have them still."""


class Span(NamedTuple):
    """The checked bounds of a read: the events in (after, upto], of that partition (None: of all)."""

    after: int
    upto: int
    partition: int | None


class StageWriter(Protocol):
    """A stage being written. Its owner calls `close` or `abort`, once; `write` and `close` raise DiskFull, TooLarge."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch, of the schema that the stage was opened with."""

    def close(self) -> Staged:
        """Make it durable. From then on it can be committed."""

    def abort(self) -> None:
        """Leave nothing of it. Raises nothing."""


class Sending(Protocol):
    """A stream on its way to its reader, as the server knows of it. Nothing of it raises."""

    end_reason: str | None
    """Why it is to end before its end, if it is."""

    def sent(self, events: int) -> None:
        """So many events were given to it."""

    def end(self) -> None:
        """It gets no more. To be called once it has all, or is refused the rest."""

    def forget(self) -> None:
        """The same, from whatever code the interpreter happens to be in: nothing is waited for. More than once, too."""


class Backend(Protocol):
    """The logs as the server sees them. What a client sent has been checked for its shape, and the right to it.

    `act` checks both itself.
    """

    # Who asks

    def authenticate(self, credentials: Credentials | None, peer: str) -> Login:
        """See core.access.Guard. `peer` is empty where it is not known (in a handshake). Raises Unauthenticated."""

    def user(self, name: str, seal: str, peer: str) -> User:
        """The user of that name, as he is now, whom a session has authenticated.

        Raises Unauthenticated: he is no more, or has another password, so that the seal of his login counts no more.
        """

    def authorize(self, user: User, right: Right, log: str) -> None:
        """See core.access.Guard: raises Forbidden, and counts it. There need not be a log of that name."""

    # Reading

    def place(self, log: str) -> LogPlace:
        """The log at present. Called for every read: it should be quick. Raises LogNotFound."""

    def check_position(self, log: str, position: int) -> None:
        """See LocalLog. Called only for positions below the first retained event."""

    def count(self, log: str, span: Span) -> int:
        """How many events are retained in the span."""

    def splits(self, log: str, span: Span, query: Query, *, split_bytes: int, splits_min: int) -> Sequence[SplitSize]:
        """The span in pieces, in order and without gaps, of about that size; none for an empty span.

        They may be larger where few events match the query.
        """

    def scan(
        self, log: str, span: Span, query: Query, columns: Sequence[str], batch_bytes: Callable[[], int]
    ) -> Iterator[pa.RecordBatch]:
        """The events in order, in batches of `formats.arrow.tables.SCHEMA` restricted to `columns`, in the order given.

        `batch_bytes` says about how many bytes the next batch may have; one row is one batch at least.
        What is retained at the time of the call is given, the rest is absent; batches are made as they are asked for.
        Closing the iterator, or forgetting it, ends the scan; another thread may close it than that which ran it.
        """

    def sending(self, user: User, peer: str, ticket: Ticket) -> Sending:
        """A stream to a reader begins."""

    def lender(self, user: User, body: LendBody) -> Lender:
        """Where these segments are lent to a process of this machine, if they are."""

    # Writing

    def append(self, command: AppendCommand, batch: pa.RecordBatch) -> Appended:
        """Append a batch as one append, durably. Raises as EventLog.append, InvalidQuery.

        The batch is valid, and of a schema that `formats.arrow.events.check_schema` takes; its rows were not looked at.
        With `on_duplicate` = skip, events whose ids are stored are left out.
        """

    def stage(self, user: User, command: StageCommand, schema: pa.Schema) -> StageWriter:
        """Begin a stage. Raises LogNotFound, DiskFull, TooLarge, and Forbidden: the writer's name is another user's."""

    # All else

    def act(self, user: User, name: str, body: bytes) -> bytes:
        """The answer to one of `wire.ACTIONS` that is not done here, whose body is as it came.

        Raises InvalidInput, Forbidden (and counts it), and what the log raises.
        """
