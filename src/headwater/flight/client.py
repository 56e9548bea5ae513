"""A client of the bulk plane: the actions by name, plans, streams of Arrow batches in and out.

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
"""Batches that are on their way while the first of them is not yet known to be durable."""


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
    """Send the batches, and add each answer as soon as it is there. Raises the errors of Flight, and ServerFault.

    `is_cautious`: nothing follows the first batch before it is answered, so that without an answer nothing is in that
    the server refuses.
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
        with suppress(pa.ArrowException):  # it says again what is raised already, or that the end was not marked
            writer.close()
        raise


def _answer(writer: flight.FlightStreamWriter, reader: flight.FlightMetadataReader, kind: type[T]) -> T:
    metadata = reader.read()
    if metadata is None:
        writer.close()  # this says why, if the server refused
        raise ServerFault("the server ended the stream before it had answered each batch")
    return decoded(kind, metadata.to_pybytes())


SEQUENCE_NUMBER = "sequence_number"
REPORT_S = 5.0
ANY_WRITER = "-"
"""Whom to ask for where only the answer of the primary counts, whatever it is."""


class BulkClient(Closing):
    """The logs of one server, or of a home, in bulk. Safe to use from any thread; make one and keep it.

    All methods raise the errors of `core.errors` and `core.access`, ServerUnreachable where no answer comes for as
    long as is tried, `errors.Busy` and `errors.ServerFault`; with several addresses `calls.seen.NotHereYet`, too.
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
        """See BulkAddress. Nothing is sent yet."""
        self.address = BulkAddress(url, user, password, token, ca_file, is_verified, timeout_s, retries)
        self._calls = Calls(self.address)

    @staticmethod
    def of(address: BulkAddress) -> BulkClient:
        """The client of an address."""
        names = BulkAddress.__dataclass_fields__
        return BulkClient(**{name: getattr(address, name) for name in names})

    @property
    def url(self) -> str:
        """Where it is: of several addresses, the one in use."""
        return self._calls.url

    def close(self) -> None:
        """Close the connection. Streams that are open break."""
        self._calls.close()

    # Looking

    def logs(self) -> list[str]:
        """The logs that the user may read."""
        return self._act(wire.LOGS, wire.Nothing()).logs

    def info(self, log: str) -> LogInfo:
        """See EventLog."""
        return self._calls.look(wire.INFO, log)

    def head(self, log: str) -> Extent:
        """How far the log goes. Of several addresses none answers less than was known of it before."""
        return self._calls.look(wire.HEAD, log)

    def heads(self, logs: Sequence[str]) -> dict[str, Extent]:
        """The same for many logs in one request (for each 1,000); logs that are not there are left out.

        Raises Forbidden for a log that may not be read. A server of 0.1.0 is asked for one log after the other.
        """
        found: dict[str, Extent] = {}
        for at in range(0, len(logs), wire.HEADS_MAX):
            found |= self._calls.look_at_many(tuple(logs[at : at + wire.HEADS_MAX]))
        for log in logs:
            if log not in found:  # it is not there, may not be read, or another address knows more of it
                with suppress(LogNotFound):
                    found[log] = self.head(log)
        return found

    def expect(self, log: str, incarnation: str, head: int) -> None:
        """It is known from elsewhere that the log goes so far: of several addresses, none that has less is believed.

        Asks nobody.
        """
        if not self._calls.is_single:
            self._calls.seen.expect(log, incarnation, head)

    def sequence_number_at(self, log: str, recorded_at: int) -> int:
        """The number of the first retained event recorded at that time (ms) or later; head + 1 if there is none."""
        return self._act(wire.SEQUENCE_NUMBER_AT, wire.SequenceNumberAtBody(log, recorded_at), log=log).sequence_number

    position_at = sequence_number_at
    """Its name in 0.1.0."""

    def count(
        self, log: str, after: int | None = None, upto: int | None = None, *, partition: int | None = None
    ) -> int:
        """How many events are retained in (after, upto]."""
        return self._act(wire.COUNT, wire.CountBody(log, after, upto, partition), log=log).events

    # Reading

    def plan(self, ticket: Ticket, *, split_bytes: int = wire.SPLIT_BYTES, splits_min: int = 1) -> list[Split]:
        """The ticket in pieces of about that size, in order; each names the log's incarnation and fixed bounds."""
        fields = {name: getattr(ticket, name) for name in Ticket.__struct_fields__}
        command = wire.encode(wire.PlanCommand(**fields, split_bytes=split_bytes, splits_min=splits_min))
        descriptor = flight.FlightDescriptor.for_command(command)
        is_fixed = ticket.upto is not None and ticket.incarnation is not None
        info = self._calls.call(
            lambda at: at.client().get_flight_info(descriptor, at.options()), log=None if is_fixed else ticket.log
        )
        return [_split_of(endpoint) for endpoint in info.endpoints]

    def schema(self, ticket: Ticket) -> pa.Schema:
        """The schema of the ticket's batches. Asks nobody."""
        return schema_of(ticket)

    def read(self, ticket: Ticket) -> Iterator[pa.RecordBatch]:
        """The ticket's batches, in order. One that breaks off goes on after the last number that was given out.

        The head is fixed, and so is the incarnation, when the iteration begins.
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
        """Who lends the segments of a ticket with fixed bounds to a process of that user: see `segment_sharing.take`.

        Raises InvalidInput where an older server has no such action.
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

        With a condition, all of them are one append.

        Answers where each went. It is not tried again by itself: after ServerUnreachable some may be in, and with
        ids in the events, and `on_duplicate` = skip, all may be sent again.
        """
        is_one = condition is not None
        append = wire.AppendCommand(log, partition, wire.condition_json(condition), on_duplicate, marks_end=is_one)
        appended = self._put(
            log, wire.PutCommand(append=append), batches, Appended, has_positions=is_one, is_idempotent=False
        )
        self._calls.reached(log, max((each.last for each in appended), default=0))
        return appended

    def stage(self, log: str, writer: str, batch: int, part: int, attempt: int, batches: Batches) -> Staged:
        """Lay batches down for a commit, durably. Tried again if `batches` can be gone through again (no iterator)."""
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
        """Append the stages, in that order, exactly once, however often it is asked for."""
        body = wire.CommitBody(
            log, writer, batch, tuple(stages), partition, wire.condition_json(condition), on_duplicate
        )
        committed = self._act(
            wire.COMMIT, body, flight.FlightCallOptions(timeout=None), log=log, has_positions=condition is not None
        )
        self._calls.reached(log, committed.last)
        return committed

    def discard(self, log: str, writer: str, batch: int, *, gives_up: bool = False) -> None:
        """Forget the stages of a batch that is not to be committed.

        Where a part of them is in the log, the rest stays for a commit to go on with, unless the caller `gives_up`:
        then nothing can be staged for the batch any more either.
        """
        self._act(wire.DISCARD, wire.DiscardBody(log, writer, batch, gives_up), log=log, has_positions=False)

    def writer(self, log: str, writer: str) -> WriterState | None:
        """How far that writer is; None if it never committed."""
        return self._act(wire.WRITER, wire.WriterBody(log, writer), log=log, has_positions=False).writer

    def forget_writer(self, log: str, writer: str) -> None:
        """Have a writer forgotten whose last batch (2^63 - 1) is committed, and is not committed again by anything.

        A commit that comes nevertheless appends again. Nothing happens where no such writer is known. Raises
        InvalidInput where it has not ended, and where an older server has no such action.
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
        """A stream of that name is done with everything up to that number: for lag and metrics, and nothing else.

        The server forgets it after seven days without a word, and when it starts anew. This is tried once, for at most
        REPORT_S: who reads on is not to wait for it. Raises InvalidInput where an older server has no such action.
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
        """The answers to a stream. What cannot be gone through again is sent once, and begun when the login is good.

        And where the primary is: a question that is the primary's finds it.
        """
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
