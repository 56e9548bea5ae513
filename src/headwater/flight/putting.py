"""One stream of batches to a server, and its answers, as they come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from .connection import Connection, decoded
from .errors import ServerFault
from .sending import pieces_of
from .wire import END, PutCommand, encode

T = TypeVar("T")

APPENDS_AHEAD = 4
"""Batches that are on their way while the first of them is not yet known to be durable."""


def put_once(
    connection: Connection,
    command: PutCommand,
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
    descriptor = flight.FlightDescriptor.for_command(encode(command))
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
            writer.write_metadata(END)
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
