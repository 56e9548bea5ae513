"""A client of the bulk plane: actions by name, plans, and streams of Arrow batches in both directions.

with BulkClient("grpc://127.0.0.1:8815") as bulk:
    for batch in bulk.read(Ticket("orders", columns=("sequence_number", "type"))):
        ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from ..core.closing import Closing
from ..core.condition import AppendCondition
from ..core.consumer import Consumer
from ..core.errors import LogNotFound
from ..core.extent import Extent
from ..core.log import LogInfo
from ..core.mark import Committed, Staged, WriterState
from ..core.settings import LogSettings
from . import wire
from .calls.address import RETRIES, TIMEOUT_S, BulkAddress
from .calls.batches import Batches, pieces_of, schema_and_batches
from .calls.calls import FAILURES, Calls
from .calls.connection import FlightConnection, decoded
from .errors import ServerFault
from .schemas import schema_of
from .wire import Appended, OnDuplicate, Split, Ticket

T = TypeVar("T")

APPENDS_AHEAD = 4
"""The maximum number of batches in flight before the first one is known to be durable."""


def put_once(
    connection: FlightConnection,
    command: wire.PutCommand,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    answers: list[T],
    kind: type[T],
    *,
    is_cautious: bool,
) -> None:
    """Send the batches, and add each answer as it arrives. Raises Flight's errors and ServerFault.

    `is_cautious`: wait for the answer to the first batch before sending more, so that without an answer nothing was
    stored that the server refuses.
    """
    target = command.append or command.stage
    assert target is not None
    descriptor = flight.FlightDescriptor.for_command(wire.encode(command))
    writer, reader = connection.client().do_put(descriptor, schema, connection.options(is_stream=True))
    sent = 0
    try:
        for batch in pieces_of(batches):
            writer.write_batch(batch)
            sent += 1
            ahead = APPENDS_AHEAD if answers or not is_cautious else 0
            if not target.marks_end and sent - len(answers) > ahead:
                answers.append(_answer(writer, reader, kind))
        if target.marks_end:
            writer.write_metadata(wire.END)
        writer.done_writing()
        while (metadata := reader.read()) is not None:
            answers.append(decoded(kind, metadata.to_pybytes()))
        writer.close()
    except BaseException:
        with suppress(pa.ArrowException):  # repeats the error already raised, or reports that the end was not marked
            writer.close()
        raise


def _answer(writer: flight.FlightStreamWriter, reader: flight.FlightMetadataReader, kind: type[T]) -> T:
    metadata = reader.read()
    if metadata is None:
        writer.close()  # raises the reason if the server refused
        raise ServerFault("the server ended the stream before it acknowledged every batch")
    return decoded(kind, metadata.to_pybytes())


SEQUENCE_NUMBER = "sequence_number"
REPORT_S = 5.0
ANY_WRITER = "-"
"""The writer name to query if only the fact that the primary answers matters."""


class BulkClient(Closing):
    """Bulk access to the logs of one server, or of a home. Thread-safe; create one and reuse it.

    All methods raise the errors of `core.errors` and `core.access`, ServerUnreachable when retries end without an
    answer, `errors.Busy` and `errors.ServerFault`; with several addresses also `calls.seen.NotHereYet`.
    """

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        ca_file: str | None = None,
        is_verified: bool = True,
        timeout_s: float = TIMEOUT_S,
        retries: int = RETRIES,
    ) -> None:
        """See BulkAddress. Sends nothing yet."""
        self.address = BulkAddress(url, user, password, token, ca_file, is_verified, timeout_s, retries)
        self._calls = Calls(self.address)

    @staticmethod
    def of(address: BulkAddress) -> BulkClient:
        """The client for an address."""
        names = BulkAddress.__dataclass_fields__
        return BulkClient(**{name: getattr(address, name) for name in names})

    @property
    def url(self) -> str:
        """The server's URL; with several addresses, the one in use."""
        return self._calls.url

    def close(self) -> None:
        """Close the connection. Open streams fail."""
        self._calls.close()

    # Looking

    def logs(self) -> list[str]:
        """The logs that the user may read."""
        return self._act(wire.LOGS, wire.Nothing()).logs

    def info(self, log: str) -> LogInfo:
        """See EventLog."""
        return self._calls.look(wire.INFO, log)

    def head(self, log: str) -> Extent:
        """The extent of the log; with several addresses, never less than was seen before."""
        return self._calls.look(wire.HEAD, log)

    def heads(self, logs: Sequence[str]) -> dict[str, Extent]:
        """The extents of many logs, 1,000 per request; missing logs are left out.

        Raises Forbidden for a log that the user may not read. A 0.1.0 server is asked for one log at a time.
        """
        found: dict[str, Extent] = {}
        for at in range(0, len(logs), wire.HEADS_MAX):
            found |= self._calls.look_at_many(tuple(logs[at : at + wire.HEADS_MAX]))
        for log in logs:
            if log not in found:  # missing or not readable, or another address has more of it
                with suppress(LogNotFound):
                    found[log] = self.head(log)
        return found

    def expect(self, log: str, incarnation: str, head: int) -> None:
        """Record that the log is known to reach `head`: with several addresses, answers that show less are rejected.

        Sends no request.
        """
        if not self._calls.is_single:
            self._calls.seen.expect(log, incarnation, head)

    def sequence_number_at(self, log: str, recorded_at: int) -> int:
        """The number of the first retained event recorded at that time (ms) or later; head + 1 if there is none."""
        return self._act(wire.SEQUENCE_NUMBER_AT, wire.SequenceNumberAtBody(log, recorded_at), log=log).sequence_number

    position_at = sequence_number_at
    """The name of this method in 0.1.0."""

    def count(
        self, log: str, after: int | None = None, upto: int | None = None, *, partition: int | None = None
    ) -> int:
        """The number of retained events in (after, upto]."""
        return self._act(wire.COUNT, wire.CountBody(log, after, upto, partition), log=log).events

    # Reading

    def plan(self, ticket: Ticket, *, split_bytes: int = wire.SPLIT_BYTES, splits_min: int = 1) -> list[Split]:
        """Split the ticket into pieces of about that size, in order; each names the log's incarnation and fixed
        bounds."""
        fields = {name: getattr(ticket, name) for name in Ticket.__struct_fields__}
        command = wire.encode(wire.PlanCommand(**fields, split_bytes=split_bytes, splits_min=splits_min))
        descriptor = flight.FlightDescriptor.for_command(command)
        is_fixed = ticket.upto is not None and ticket.incarnation is not None
        info = self._calls.call(
            lambda at: at.client().get_flight_info(descriptor, at.options()), log=None if is_fixed else ticket.log
        )
        return [_split_of(endpoint) for endpoint in info.endpoints]

    def schema(self, ticket: Ticket) -> pa.Schema:
        """The schema of the ticket's batches. Sends no request."""
        return schema_of(ticket)

    def read(self, ticket: Ticket) -> Iterator[pa.RecordBatch]:
        """The ticket's batches, in order. A broken stream resumes after the last number it returned.

        The head and the incarnation are fixed when the iteration begins.
        """
        if ticket.upto is None or ticket.incarnation is None:
            extent = self.head(ticket.log)
            upto = extent.head if ticket.upto is None else ticket.upto
            ticket = _replaced(ticket, upto=upto, incarnation=ticket.incarnation or extent.incarnation)
        asked = ticket
        has_number = ticket.columns is None or SEQUENCE_NUMBER in ticket.columns
        if not has_number:
            asked = _replaced(ticket, columns=(*(ticket.columns or ()), SEQUENCE_NUMBER))
        tries = self._calls.tries(is_read=True)
        while True:
            connection = tries.begin()
            try:
                for batch in _stream(connection, asked):
                    if batch.num_rows:
                        last = batch.column(SEQUENCE_NUMBER)[-1].as_py()
                        yield batch if has_number else batch.drop_columns([SEQUENCE_NUMBER])
                        asked = _replaced(asked, after=last)
                        tries.succeeded()
                tries.succeeded()
                return
            except FAILURES as error:
                tries.failed(error)

    def lender(self, ticket: Ticket, uid: int) -> wire.Lender:
        """The lender of the segments of a ticket with fixed bounds to a process of that user: see
        `segment_sharing.take`.

        Raises InvalidInput if the server is too old for this action.
        """
        assert ticket.after is not None and ticket.upto is not None and ticket.incarnation is not None
        return self._act(wire.LEND, wire.LendBody(ticket.log, ticket.after, ticket.upto, ticket.incarnation, uid))

    # Writing

    def append(
        self,
        log: str,
        batches: Batches,
        *,
        partition: int | None = None,
        condition: AppendCondition | None = None,
        on_duplicate: OnDuplicate = "fail",
    ) -> list[Appended]:
        """Append batches, each as one append (large ones in pieces, empty ones not at all).

        With a condition, all batches are one append.

        Returns where each batch went. Does not retry: after ServerUnreachable some batches may be stored. If the events
        have ids, send all of them again with `on_duplicate` = skip.
        """
        is_one = condition is not None
        append = wire.AppendCommand(log, partition, wire.condition_json(condition), on_duplicate, marks_end=is_one)
        appended = self._put(
            log, wire.PutCommand(append=append), batches, Appended, has_positions=is_one, is_idempotent=False
        )
        self._calls.reached(log, max((each.last for each in appended), default=0))
        return appended

    def stage(self, log: str, writer: str, batch: int, part: int, attempt: int, batches: Batches) -> Staged:
        """Stage batches durably for a commit. Retried if `batches` can be iterated again (is no iterator)."""
        stage = wire.StageCommand(log, writer, batch, part, attempt, marks_end=True)
        return self._put(log, wire.PutCommand(stage=stage), batches, Staged)[0]

    def commit(
        self,
        log: str,
        writer: str,
        batch: int,
        stages: Sequence[str],
        *,
        partition: int | None = None,
        condition: AppendCondition | None = None,
        on_duplicate: OnDuplicate = "fail",
    ) -> Committed:
        """Append the stages, in that order, exactly once, however often it is called."""
        body = wire.CommitBody(
            log, writer, batch, tuple(stages), partition, wire.condition_json(condition), on_duplicate
        )
        committed = self._act(
            wire.COMMIT, body, flight.FlightCallOptions(timeout=None), log=log, has_positions=condition is not None
        )
        self._calls.reached(log, committed.last)
        return committed

    def discard(self, log: str, writer: str, batch: int, *, gives_up: bool = False) -> None:
        """Discard the stages of a batch that will not be committed.

        If some of them are in the log, the rest stays so that a commit can continue, unless the caller `gives_up`: then
        nothing more can be staged for the batch either.
        """
        self._act(wire.DISCARD, wire.DiscardBody(log, writer, batch, gives_up), log=log, has_positions=False)

    def writer(self, log: str, writer: str) -> WriterState | None:
        """The writer's progress; None if it never committed."""
        return self._act(wire.WRITER, wire.WriterBody(log, writer), log=log, has_positions=False).writer

    def forget_writer(self, log: str, writer: str) -> None:
        """Forget a writer whose last batch (2^63 - 1) is committed and will never be committed again.

        A later commit appends again. Does nothing for an unknown writer. Raises InvalidInput if the writer has not
        ended, or if the server is too old for this action.
        """
        self._act(wire.FORGET_WRITER, wire.WriterBody(log, writer), log=log, has_positions=False)

    # Managing

    def create_log(self, log: str, settings: LogSettings | None = None) -> LogInfo:
        """See LogStore.create."""
        return self._act(wire.CREATE_LOG, wire.CreateBody(log, wire.settings_json(settings)))

    def trim(self, log: str, below: int) -> int:
        """See EventLog."""
        return self._act(wire.TRIM, wire.TrimBody(log, below), log=log).first_retained

    def consumers(self, log: str) -> list[Consumer]:
        """See EventLog."""
        return self._act(wire.CONSUMERS, wire.LogBody(log)).consumers

    def consumer(self, log: str, owner: str, component: str) -> Consumer | None:
        """One registered consumer, or None."""
        return self._act(wire.CONSUMER, wire.ConsumerBody(log, owner, component)).consumer

    def register_consumer(
        self, log: str, owner: str, component: str, *, after: int | None = None, drops_at_most: int = 0
    ) -> Consumer:
        """See EventLog."""
        body = wire.RegisterBody(log, owner, component, after, drops_at_most)
        return self._act(wire.REGISTER_CONSUMER, body, log=log)

    def acknowledge(
        self, log: str, owner: str, component: str, sequence_number: int, *, epoch: int | None = None
    ) -> Consumer:
        """See EventLog."""
        body = wire.AcknowledgeBody(log, owner, component, sequence_number, epoch)
        return self._act(wire.ACKNOWLEDGE, body, log=log)

    def unregister_consumer(self, log: str, owner: str, component: str, *, drops_at_most: int = 0) -> None:
        """See EventLog."""
        self._act(wire.UNREGISTER_CONSUMER, wire.UnregisterBody(log, owner, component, drops_at_most), log=log)

    def report_position(self, log: str, stream: str, position: int) -> None:
        """Report that the named stream has processed everything up to that number; used only for lag and metrics.

        The server forgets it after seven days without a report, and when it restarts. Tried once, for at most REPORT_S,
        so that it does not hold up the reader. Raises InvalidInput if the server is too old for this action.
        """
        options = flight.FlightCallOptions(timeout=min(self.address.timeout_s, REPORT_S))
        self._act(wire.REPORT_POSITION, wire.ReportBody(log, stream, position), options)

    def _act(
        self,
        shape: wire.ActionShape[wire.Body, wire.Answer],
        body: wire.Body,
        options: flight.FlightCallOptions | None = None,
        *,
        log: str | None = None,
        has_positions: bool = True,
    ) -> wire.Answer:
        """`log`, `has_positions`: see Calls.call."""
        return self._calls.call(
            lambda at: at.act(shape, body, options),
            log=log,
            has_positions=has_positions,
            is_idempotent=shape.is_idempotent,
        )

    def _put(
        self,
        log: str,
        command: wire.PutCommand,
        batches: Batches,
        kind: type[T],
        *,
        has_positions: bool = False,
        is_idempotent: bool = True,
    ) -> list[T]:
        """The answers to a stream. An iterator is sent once, after checking the login and finding the primary."""
        answers: list[T] = []
        is_cautious = not (self._calls.is_single or is_idempotent)

        def put(connection: FlightConnection, schema: pa.Schema, rest: Iterator[pa.RecordBatch]) -> None:
            answers.clear()
            put_once(connection, command, schema, rest, answers, kind, is_cautious=is_cautious)

        if isinstance(batches, Iterator | pa.RecordBatchReader):
            if self._calls.is_single:
                self.logs()
            else:
                self.writer(log, ANY_WRITER)
            schema, rest = schema_and_batches(batches)
            self._calls.once(lambda at: put(at, schema, rest))
        else:
            self._calls.call(
                lambda at: put(at, *schema_and_batches(batches)),
                log=log,
                has_positions=has_positions,
                is_idempotent=is_idempotent,
                is_untouched=lambda: not answers,
            )
        return answers


def _stream(connection: FlightConnection, ticket: Ticket) -> Iterator[pa.RecordBatch]:
    reader = connection.client().do_get(flight.Ticket(wire.encode(ticket)), connection.options(is_stream=True))
    is_whole = False
    try:
        for chunk in reader:
            yield chunk.data
        is_whole = True
    finally:
        if not is_whole:
            reader.cancel()


def _split_of(endpoint: flight.FlightEndpoint) -> Split:
    ticket = wire.decode(Ticket, endpoint.ticket.ticket, "ticket")
    counts = decoded(dict[str, int], endpoint.app_metadata)
    return Split(ticket, counts["events"], counts["bytes"])


def _replaced(ticket: Ticket, **changes: object) -> Ticket:
    return msgspec.structs.replace(ticket, **changes)
