"""Reads a slice from the log's own files if the server is on this machine and lends them; otherwise over Flight."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from ...core.errors import InvalidInput, StorageUnavailable
from ...flight.calls import segment_sharing
from ...flight.client import BulkClient
from ...flight.schemas import Shaping
from ...flight.wire import Ticket
from ...storage.read.mapped_log import BATCH_BYTES, BATCH_EVENTS
from ...storage.read.mapped_segment import Followed
from ...storage.read.segment_sharing import CAN_LEND, Loan, batches, borrowed

logger = logging.getLogger("headwater.spark")
NUMBERS_MIN = 8192
"""Slices of fewer numbers are read over Flight, in one call; borrowing takes two."""
_PAYLOAD = frozenset({"data", "envelope"})
ASKS_AGAIN_S = 60.0
"""How long a server on another machine, or one that lends nothing, is not asked again."""

_refusing: dict[str, float] = {}
"""Servers that are not asked, by current address, and until when."""
_lock = threading.Lock()


def read(client: BulkClient, ticket: Ticket) -> Iterator[pa.RecordBatch]:
    """The batches of a ticket, like those of `client.read`, which serves what cannot be borrowed."""
    shaping = Shaping(ticket)
    while (found := _borrowed(client, ticket)) is not None:
        loan, parts = found
        for batch in batches(
            parts, loan.after, loan.upto, shaping.columns, events=BATCH_EVENTS, bytes=BATCH_BYTES
        ):  # fmt: skip
            yield shaping.shape(batch)
        ticket = replace(ticket, after=loan.upto)
        if loan.upto == ticket.upto:
            return
    yield from client.read(ticket)


def _borrowed(client: BulkClient, ticket: Ticket) -> tuple[Loan, list[Followed]] | None:
    """What the server lends of a ticket, at least its beginning. Raises the errors of BulkClient."""
    if not CAN_LEND or not _is_worth_it(ticket) or _refuses(client.url):
        return None
    try:
        lender = client.lender(ticket, os.getuid())
        if not lender.socket:
            _note_refusal(client.url, "the server shares none")
            return None
        message, descriptors = segment_sharing.take(lender)
        if not message:
            logger.info("a slice of log %s is read over Flight: its segments are not shared", ticket.log)
            return None
        loan = _loan(message, descriptors)
        parts = borrowed(loan, descriptors)
        _check(loan, ticket)
        return loan, parts
    except (OSError, InvalidInput, StorageUnavailable, msgspec.MsgspecError) as error:
        _note_refusal(client.url, str(error))
        return None


def _loan(message: bytes, descriptors: list[int]) -> Loan:
    """The description of the descriptors, which are closed if it cannot be decoded. Raises MsgspecError."""
    try:
        return msgspec.json.decode(message, type=Loan)
    except msgspec.MsgspecError:
        for descriptor in descriptors:
            os.close(descriptor)
        raise


def _check(loan: Loan, ticket: Ticket) -> None:
    """Raises StorageUnavailable unless it is the beginning of the ticket."""
    assert ticket.after is not None and ticket.upto is not None, "it was worth it"
    if not (loan.segments and loan.after == ticket.after < loan.upto <= ticket.upto):
        asked = f"requested events {ticket.after + 1} to {ticket.upto}"
        raise StorageUnavailable(f"{asked}, but the server shared {loan.after + 1} to {loan.upto}")


def _is_worth_it(ticket: Ticket) -> bool:
    """Whether it requests the payloads of all events of a large range.

    Selecting some of the events requires the server's index. A borrower also checks each frame completely, although the
    server has already done so: without payloads, that costs more than sending the data.
    """
    if ticket.query is not None or ticket.partition is not None or ticket.incarnation is None:
        return False
    if ticket.columns is not None and not _PAYLOAD.intersection(ticket.columns):
        return False
    return ticket.after is not None and ticket.upto is not None and ticket.upto - ticket.after >= NUMBERS_MIN


def _refuses(url: str) -> bool:
    with _lock:
        return time.monotonic() < _refusing.get(url, 0.0)


def _note_refusal(url: str, reason: str) -> None:
    with _lock:
        is_news = url not in _refusing
        _refusing[url] = time.monotonic() + ASKS_AGAIN_S
    if is_news:
        logger.info("logs of %s are read over Flight: %s", url, reason)
