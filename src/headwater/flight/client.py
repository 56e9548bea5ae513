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

from ..core.condition import AppendCondition
from ..core.consumer import Consumer
from ..core.errors import EventLogError
from ..core.extent import Extent
from ..core.log import LogInfo
from ..core.mark import Committed, Staged, WriterState
from ..core.settings import LogSettings
from ..formats.decoders import json_decoder
from ..formats.retrying import Attempts
from . import wire
from .address import RETRIES, TIMEOUT_S, BulkAddress
from .calling import Calls
from .errors import ServerFault
from .schemas import schema_of
from .sending import Batches, pieces_of, schema_and_batches
from .wire import SPLIT_BYTES, ActionShape, Answer, Appended, Body, Lender, OnDuplicate, Split, Ticket, encode

T = TypeVar("T")

SEQUENCE_NUMBER = "sequence_number"
REPORT_S = 5.0
APPENDS_AHEAD = 4
"""Batches that are on their way while the first of them is not yet known to be durable."""


class BulkClient:
    """The logs of one server, in bulk. Safe to use from any thread; make one and keep it.

    All methods raise the errors of `core.errors` and `core.access`, ServerUnreachable where no answer comes for as
    long as is tried, `errors.Busy` and `errors.ServerFault`.
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

    def close(self) -> None:
        """Close the connection. Streams that are open break."""
        self._calls.close()

    def __enter__(self) -> BulkClient:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # Looking

    def logs(self) -> list[str]:
        """The logs that the user may read."""
        return self._act(wire.LOGS, wire.Nothing()).logs

    def info(self, log: str) -> LogInfo:
        """See EventLog."""
        return self._act(wire.INFO, wire.LogBody(log))

    def head(self, log: str) -> Extent:
        """How far the log goes."""
        return self._act(wire.HEAD, wire.LogBody(log))

    def sequence_number_at(self, log: str, recorded_at: int) -> int:
        """The number of the first retained event recorded at that time (ms) or later; head + 1 if there is none."""
        return self._act(wire.SEQUENCE_NUMBER_AT, wire.SequenceNumberAtBody(log, recorded_at)).sequence_number

    position_at = sequence_number_at
    """Its name in 0.1.0."""

    def count(
        self, log: str, after: int | None = None, upto: int | None = None, *, partition: int | None = None
    ) -> int:
        """How many events are retained in (after, upto]."""
        return self._act(wire.COUNT, wire.CountBody(log, after, upto, partition)).events

    # Reading

    def plan(self, ticket: Ticket, *, split_bytes: int = SPLIT_BYTES, splits_min: int = 1) -> list[Split]:
        """The ticket in pieces of about that size, in order; each names the log's incarnation and fixed bounds."""
        fields = {name: getattr(ticket, name) for name in Ticket.__struct_fields__}
        command = encode(wire.PlanCommand(**fields, split_bytes=split_bytes, splits_min=splits_min))
        descriptor = flight.FlightDescriptor.for_command(command)
        info = self._calls.call(lambda: self._calls.client().get_flight_info(descriptor, self._calls.options()))
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
        attempts = Attempts(retries=self.address.retries)
        while True:
            session = self._calls.session
            try:
                for batch in self._stream(asked):
                    if batch.num_rows:
                        last = batch.column(SEQUENCE_NUMBER)[-1].as_py()
                        yield batch if has_number else batch.drop_columns([SEQUENCE_NUMBER])
                        asked = _replaced(asked, after=last)
                        attempts.succeeded()
                return
            except (flight.FlightError, pa.ArrowException, EventLogError) as error:
                self._calls.failed(error, session, attempts)

    def lender(self, ticket: Ticket, uid: int) -> Lender:
        """Who lends the segments of a ticket with fixed bounds to a process of that user; see `borrowing.take`.

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
        return self._put(wire.PutCommand(append=append), batches, Appended, is_idempotent=False)

    def stage(self, log: str, writer: str, batch: int, part: int, attempt: int, batches: Batches) -> Staged:
        """Lay batches down for a commit, durably. Tried again if `batches` can be gone through again (no iterator)."""
        stage = wire.StageCommand(log, writer, batch, part, attempt, marks_end=True)
        return self._put(wire.PutCommand(stage=stage), batches, Staged)[0]

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
        return self._act(wire.COMMIT, body, self._calls.options(is_stream=True))

    def discard(self, log: str, writer: str, batch: int, *, gives_up: bool = False) -> None:
        """Forget the stages of a batch that is not to be committed.

        Where a part of them is in the log, the rest stays for a commit to go on with, unless the caller `gives_up`:
        then nothing can be staged for the batch any more either.
        """
        self._act(wire.DISCARD, wire.DiscardBody(log, writer, batch, gives_up))

    def writer(self, log: str, writer: str) -> WriterState | None:
        """How far that writer is; None if it never committed."""
        return self._act(wire.WRITER, wire.WriterBody(log, writer)).writer

    # Managing

    def create_log(self, log: str, settings: LogSettings | None = None) -> LogInfo:
        """See LogStore.create."""
        return self._act(wire.CREATE_LOG, wire.CreateBody(log, wire.settings_json(settings)))

    def trim(self, log: str, below: int) -> int:
        """See EventLog."""
        return self._act(wire.TRIM, wire.TrimBody(log, below)).first_retained

    def consumers(self, log: str) -> list[Consumer]:
        """See EventLog."""
        return self._act(wire.CONSUMERS, wire.LogBody(log)).consumers

    def consumer(self, log: str, owner: str, component: str) -> Consumer | None:
        """One registered consumer, or None."""
        return self._act(wire.CONSUMER, wire.ConsumerBody(log, owner, component)).consumer

    def register_consumer(self, log: str, owner: str, component: str, *, after: int | None = None) -> Consumer:
        """See EventLog."""
        return self._act(wire.REGISTER_CONSUMER, wire.RegisterBody(log, owner, component, after))

    def acknowledge(
        self, log: str, owner: str, component: str, sequence_number: int, *, epoch: int | None = None
    ) -> Consumer:
        """See EventLog."""
        body = wire.AcknowledgeBody(log, owner, component, sequence_number, epoch)
        return self._act(wire.ACKNOWLEDGE, body)

    def unregister_consumer(self, log: str, owner: str, component: str) -> None:
        """See EventLog."""
        self._act(wire.UNREGISTER_CONSUMER, wire.ConsumerBody(log, owner, component))

    def report_position(self, log: str, stream: str, position: int) -> None:
        """A stream of that name is done with everything up to that number: for lag and metrics, and nothing else.

        The server forgets it after seven days without a word, and when it starts anew. This is tried once, for at most
        REPORT_S: who reads on is not to wait for it. Raises InvalidInput where an older server has no such action.
        """
        options = flight.FlightCallOptions(timeout=min(self.address.timeout_s, REPORT_S))
        self._act(wire.REPORT_POSITION, wire.ReportBody(log, stream, position), options)

    def _act(
        self, shape: ActionShape[Body, Answer], body: Body, options: flight.FlightCallOptions | None = None
    ) -> Answer:
        action = flight.Action(shape.name, encode(body))

        def act() -> bytes:
            results = list(self._calls.client().do_action(action, options or self._calls.options()))
            answer: bytes = results[0].body.to_pybytes() if results else b""
            return answer

        answer = self._calls.call(act, is_idempotent=shape.is_idempotent)
        return _decoded(shape.answer, answer)

    def _stream(self, ticket: Ticket) -> Iterator[pa.RecordBatch]:
        reader = self._calls.client().do_get(flight.Ticket(encode(ticket)), self._calls.options(is_stream=True))
        is_whole = False
        try:
            for chunk in reader:
                yield chunk.data
            is_whole = True
        finally:
            if not is_whole:
                reader.cancel()

    def _put(self, command: wire.PutCommand, batches: Batches, kind: type[T], *, is_idempotent: bool = True) -> list[T]:
        """The answers to a stream. What cannot be gone through again is sent once, and begun when the login is good."""
        if isinstance(batches, Iterator | pa.RecordBatchReader):
            self.logs()
            schema, rest = schema_and_batches(batches)
            try:
                return self._put_once(command, schema, rest, kind)
            except (flight.FlightError, pa.ArrowException) as error:
                raise self._calls.error_of(error) from None
        return self._calls.call(
            lambda: self._put_once(command, *schema_and_batches(batches), kind), is_idempotent=is_idempotent
        )

    def _put_once(
        self, command: wire.PutCommand, schema: pa.Schema, batches: Iterator[pa.RecordBatch], kind: type[T]
    ) -> list[T]:
        target = command.append or command.stage
        assert target is not None
        descriptor = flight.FlightDescriptor.for_command(encode(command))
        writer, reader = self._calls.client().do_put(descriptor, schema, self._calls.options(is_stream=True))
        answers: list[T] = []
        sent = 0
        try:
            for batch in pieces_of(batches):
                writer.write_batch(batch)
                sent += 1
                if not target.marks_end and sent - len(answers) > APPENDS_AHEAD:
                    answers.append(_answer(reader, kind))
            if target.marks_end:
                writer.write_metadata(wire.END)
            writer.done_writing()
            while (metadata := reader.read()) is not None:
                answers.append(_decoded(kind, metadata.to_pybytes()))
            writer.close()
        except BaseException:
            with suppress(pa.ArrowException):  # it says again what is raised already, or that the end was not marked
                writer.close()
            raise
        return answers


def _answer(reader: flight.FlightMetadataReader, kind: type[T]) -> T:
    metadata = reader.read()
    if metadata is None:
        raise ServerFault("the server ended the stream before it had answered each batch")
    return _decoded(kind, metadata.to_pybytes())


def _decoded(kind: type[T], text: bytes) -> T:
    try:
        return json_decoder(kind).decode(text)
    except msgspec.MsgspecError as error:
        raise ServerFault(f"the answer is not understood: {error}") from None


def _split_of(endpoint: flight.FlightEndpoint) -> Split:
    ticket = wire.decode(Ticket, endpoint.ticket.ticket, "ticket")
    counts = _decoded(dict[str, int], endpoint.app_metadata)
    return Split(ticket, counts["events"], counts["bytes"])


def _replaced(ticket: Ticket, **changes: object) -> Ticket:
    return msgspec.structs.replace(ticket, **changes)
