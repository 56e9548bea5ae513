"""The interface that the server needs: logs, users, and storage for staged batches.

All calls may block, may be made from many threads at once, and raise the errors of `core.errors` and `core.access`.
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
    """An authenticated user, and the seal that tells the backend whether the login is still valid."""

    user: User
    seal: str


class LogPlace(NamedTuple):
    """A log at one moment: its extent, its settings and its location."""

    extent: Extent
    settings: LogSettings
    directory: str = ""
    """Empty if the log is not on disk."""
    may_append: bool = True
    """False at a replica, because the primary could not commit batches that are staged there."""
    distrusted: Sequence[tuple[int, int]] = ()
    """Events damaged on disk. They are not read, even if memory still has them."""


class Span(NamedTuple):
    """The checked bounds of a read: the events in (after, upto] of one partition (None for all)."""

    after: int
    upto: int
    partition: int | None


class StageWriter(Protocol):
    """Writes a stage. Its owner calls `close` or `abort` once; `write` and `close` raise DiskFull, TooLarge."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch with the schema that the stage was opened with."""

    def close(self) -> Staged:
        """Make the stage durable; it can then be committed."""

    def abort(self) -> None:
        """Delete the stage. Never raises."""


class Sending(Protocol):
    """The server's record of a stream being sent to a reader. Its methods never raise."""

    end_reason: str | None
    """Why the stream must end early, or None."""

    def sent(self, events: int) -> None:
        """Count events that were sent."""

    def end(self) -> None:
        """End it. Called once, when the reader has everything, or is refused the rest."""

    def forget(self) -> None:
        """The same without waiting, safe in whatever code the interpreter interrupts. May be called repeatedly."""


class Backend(Protocol):
    """The logs as the server sees them. The shape of the request and the user's right are already checked.

    `act` checks both itself.
    """

    # Users

    def authenticate(self, credentials: Credentials | None, peer: str) -> Login:
        """See core.access.Guard. `peer` is empty if unknown (in a handshake). Raises Unauthenticated."""

    def user(self, name: str, seal: str, peer: str) -> User:
        """The current state of the user that a session has authenticated.

        Raises Unauthenticated: the user was deleted or has another password, so that the seal of the login is invalid.
        """

    def authorize(self, user: User, right: Right, log: str) -> None:
        """See core.access.Guard. Raises Forbidden, and counts it. The log need not exist."""

    # Reading

    def place(self, log: str) -> LogPlace:
        """The current state of the log. Called for every read, so it should be fast. Raises LogNotFound."""

    def check_position(self, log: str, position: int) -> None:
        """See LocalLog. Called only for positions below the first retained event."""

    def count(self, log: str, span: Span) -> int:
        """The number of retained events in the span."""

    def splits(self, log: str, span: Span, query: Query, *, split_bytes: int, splits_min: int) -> Sequence[SplitSize]:
        """Split the span into pieces of about that size, in order and without gaps; none for an empty span.

        Pieces may be larger if few events match the query.
        """

    def scan(
        self, log: str, span: Span, query: Query, columns: Sequence[str], batch_bytes: Callable[[], int]
    ) -> Iterator[pa.RecordBatch]:
        """The events in order, in batches of `formats.arrow.tables.SCHEMA` restricted to `columns`, in the order given.

        `batch_bytes` returns about how many bytes the next batch may have; a batch has at least one row. Only events
        retained at the time of the call are returned; batches are made on demand. Closing the iterator, or dropping it,
        ends the scan; any thread may close it.
        """

    def sending(self, user: User, peer: str, ticket: Ticket) -> Sending:
        """Register a stream that begins for a reader."""

    def lender(self, user: User, body: LendBody) -> Lender:
        """The lender of these segments to a process on this machine, if they are lent."""

    # Writing

    def append(self, command: AppendCommand, batch: pa.RecordBatch) -> Appended:
        """Append a batch durably as one append. Raises the same errors as EventLog.append, and InvalidQuery.

        The batch is valid Arrow, with a schema that `formats.arrow.events.check_schema` accepts; its rows are
        unchecked. With `on_duplicate` = skip, events whose ids are stored are left out.
        """

    def stage(self, user: User, command: StageCommand, schema: pa.Schema) -> StageWriter:
        """Begin a stage. Raises LogNotFound, DiskFull, TooLarge, and Forbidden if another user has that writer name."""

    # Everything else

    def act(self, user: User, name: str, body: bytes) -> bytes:
        """The answer to one of `wire.ACTIONS` that the server does not handle itself; `body` is as sent.

        Raises InvalidInput, Forbidden (and counts it), and the errors of the log.
        """
