"""Reads: ticket checks, streams of batches, and plans."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.flight as flight
from msgspec import structs

from ...core.access import User
from ...core.errors import Closed, InvalidPosition, PositionOfOtherIncarnation, TooLarge
from ...core.extent import Extent
from ...core.limits import show
from ...core.log import LogInfo
from ..errors import flight_error_of
from ..schemas import Shaping, schema_of
from ..wire import SPLITS_MAX, CountBody, PlanCommand, Ticket, encode, query_of
from .backend import Backend, Sending, Span
from .limits import StreamPlace

PLAN_BYTES_MAX = 64 * 1024 * 1024
"""The limit for the tickets of one plan, which all repeat the query; at most 1/`PLAN_PART` of the memory."""
PLAN_PART = 4


def span_of(backend: Backend, asked: Ticket | CountBody) -> tuple[Span, Extent]:
    """The checked bounds of a ticket, and the extent of the log.

    Raises LogNotFound, InvalidPosition, PositionTrimmed, PositionOfOtherIncarnation.
    """
    place = backend.place(asked.log)
    extent, partitions = place.extent, place.settings.partitions
    incarnation = asked.incarnation if isinstance(asked, Ticket) else None
    if incarnation is not None and incarnation != extent.incarnation:
        raise PositionOfOtherIncarnation(asked.after or 0, extent.incarnation, extent.first_retained)
    if asked.partition is not None and not 0 <= asked.partition < partitions:
        problem = f"expected 0 to {partitions - 1}, got {asked.partition}"
        raise InvalidPosition(problem, "partition")
    for name, value in (("after", asked.after), ("upto", asked.upto)):
        if value is not None and value > extent.head:
            raise InvalidPosition(f"expected 0 to {extent.head} (the head), got {value}", name)
    upto = extent.head if asked.upto is None else asked.upto
    if asked.after is None:
        return Span(min(extent.first_retained - 1, upto), upto, asked.partition), extent
    if upto < asked.after:
        raise InvalidPosition(f"expected {asked.after} (`after`) or more, got {upto}", "upto")
    if asked.after + 1 < extent.first_retained:
        backend.check_position(asked.log, asked.after + 1)
    return Span(asked.after, upto, asked.partition), extent


def batches_of(
    backend: Backend,
    user: User,
    peer: str,
    ticket: Ticket,
    place: StreamPlace,
    stopping: threading.Event,
    took: Callable[[], None],
) -> flight.FlightDataStream:
    """The stream of a ticket; it holds its place until it ends or is dropped. Raises the same errors as `span_of`.

    `took` is called for each batch.
    """
    shaping = Shaping(ticket)
    query = query_of(ticket.query, "query")
    span, _ = span_of(backend, ticket)
    batches = backend.scan(ticket.log, span, query, shaping.columns, place.piece_bytes)
    span_of(
        backend, ticket
    )  # check again, because events trimmed, or a log recreated, in between would be missing without an error
    sending = backend.sending(user, peer, ticket)
    stream = Batches(batches, shaping, place, stopping, ticket.log, sending, took)
    written = pa.ipc.IpcWriteOptions(compression=ticket.compression, use_threads=False)  # the stream has its own thread
    return flight.GeneratorStream(shaping.schema, stream, written)


class Batches(Iterator[pa.RecordBatch]):
    """The batches of a stream. gRPC requests the next one when the client has room for it.

    It is not a generator, because a generator that never started would not run its `finally`, and would keep its place.
    """

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        shaping: Shaping,
        place: StreamPlace,
        stopping: threading.Event,
        log: str,
        sending: Sending,
        took: Callable[[], None],
    ) -> None:
        self._took = took
        self._batches, self._shaping, self._place, self._stopping, self._log = batches, shaping, place, stopping, log
        self._sending = sending

    def __next__(self) -> pa.RecordBatch:
        if self._stopping.is_set():
            self._finish()
            raise flight_error_of(Closed(self._log), "a read")
        if (reason := self._sending.end_reason) is not None:
            self._finish()
            raise flight.FlightServerError(f"a read of {show(self._log)} was {reason}")  # clients must not retry this
        try:
            batch = self._shaping.shape(next(self._batches))
            self._sending.sent(batch.num_rows)
            self._took()
            return batch
        except StopIteration:
            self._finish()
            raise
        except Exception as error:
            self._finish()
            raise flight_error_of(error, f"a read of {show(self._log)}") from None

    def _finish(self) -> None:
        self._end()
        self._sending.end()

    def _end(self) -> None:
        self._place.release()
        if (close := getattr(self._batches, "close", None)) is not None:
            close()

    def __del__(self) -> None:
        self._sending.forget()
        self._end()


def plan_of(
    backend: Backend, command: PlanCommand, descriptor: flight.FlightDescriptor, memory_bytes_max: int
) -> flight.FlightInfo:
    """The splits of a ticket as endpoints, each with its own ticket. Raises the same errors as `span_of`, and
    TooLarge.
    """
    most = min(PLAN_BYTES_MAX, memory_bytes_max // PLAN_PART)
    query = query_of(command.query, "query")
    schema = schema_of(command)
    span, extent = span_of(backend, command)
    splits = backend.splits(command.log, span, query, split_bytes=command.split_bytes, splits_min=command.splits_min)
    if len(splits) > SPLITS_MAX:
        raise TooLarge(len(splits), SPLITS_MAX, "splits", "split_bytes")
    if (size := len(splits) * len(encode(command))) > most:
        raise TooLarge(size, most, "bytes of tickets", "query")
    pieces = [(split.after, split.upto, split.events, split.bytes) for split in splits]
    return _info(descriptor, schema, command.ticket, extent, pieces)


def whole_of(backend: Backend, log: LogInfo, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
    """A log as one endpoint. Raises LogNotFound."""
    ticket = Ticket(log.name)
    span, extent = span_of(backend, ticket)
    return _info(descriptor, schema_of(ticket), ticket, extent, [(span.after, span.upto, log.events, log.bytes)])


def _info(
    descriptor: flight.FlightDescriptor,
    schema: pa.Schema,
    ticket: Ticket,
    extent: Extent,
    pieces: list[tuple[int, int, int, int]],
) -> flight.FlightInfo:
    """Has no location, which means the server that was asked."""
    endpoints = []
    for after, upto, events, size in pieces:
        piece = structs.replace(ticket, after=after, upto=upto, incarnation=extent.incarnation)
        counts = encode({"events": events, "bytes": size})
        endpoints.append(flight.FlightEndpoint(encode(piece), [], app_metadata=counts))
    return flight.FlightInfo(
        schema,
        descriptor,
        endpoints,
        sum(piece[2] for piece in pieces),
        sum(piece[3] for piece in pieces),
        ordered=True,
        app_metadata=encode(extent),
    )
