"""The logs of the bulk process's Flight server: mapped read-only here; the server does everything else."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa

from ...core.access import Credentials, Right, User
from ...core.errors import EventLogError, StorageCorrupted
from ...core.extent import SplitSize
from ...core.query import Query
from ...core.shared_bytes import SharedBytes
from ...flight.server.backend import Backend, Login, LogPlace, Sending, Span
from ...flight.server.memory import PIECE_BYTES_MAX
from ...flight.server.reads import span_of
from ...flight.wire import AppendCommand, Appended, LendBody, Lender, StageCommand, Ticket, encode
from ...storage.read.mapped_log import MappedLog
from ...storage.read.segment_sharing import Lent
from ...storage.staging.batches import OpenStage, Staging
from ...storage.staging.owners import claim
from .link import Link
from .segment_sharing import Lending
from .streams import Sendings
from .writer_ownership import check_own

MAPPED_MAX = 128
"""Logs that are kept mapped; the least recently used are unmapped."""
STAGINGS_MAX = 1024
"""The number of logs for which the staged amount is kept."""


class BulkBackend(Backend):
    """See flight.backend.Backend. Any thread may call it."""

    def __init__(
        self,
        link: Link,
        *,
        lends: bool,
        staged_bytes_max: int,
        disk_reserve_bytes: int | None,
        memory: SharedBytes | None = None,
    ) -> None:
        """`memory` is the budget of this process; gathered rows are a part of it (None: see Staging)."""
        self._link, self._memory = link, memory
        self._staged_bytes_max, self._disk_reserve_bytes = staged_bytes_max, disk_reserve_bytes
        self._mapped: OrderedDict[str, MappedLog] = OrderedDict()
        """By directory. The directory differs for each incarnation of a log."""
        self._stagings: OrderedDict[str, Staging] = OrderedDict()
        """By directory, too."""
        self._mapping = threading.Lock()
        self.sendings = Sendings(link)
        """Streams to readers."""
        self._lending = Lending(self._lent) if lends else None

    # Users

    def authenticate(self, credentials: Credentials | None, peer: str) -> Login:
        name, secret = ("", None) if credentials is None else (credentials.name, credentials.secret)
        return self._link.call("authenticate", name, secret, peer, type=Login)

    def user(self, name: str, seal: str, peer: str) -> User:
        return self._link.call("user", name, seal, peer, type=User)

    def authorize(self, user: User, right: Right, log: str) -> None:
        if not user.may(right, log):
            self._link.call("authorize", user.name, right, log, type=type(None))

    # Reading

    def place(self, log: str) -> LogPlace:
        return self._link.call("place", log, type=LogPlace)

    def check_position(self, log: str, position: int) -> None:
        self._link.call("check_position", log, position, type=type(None))

    def count(self, log: str, span: Span) -> int:
        mapped = self._opened(log)
        with self._telling_damage(log):
            return mapped.count(span.after, span.upto, span.partition)

    def splits(self, log: str, span: Span, query: Query, *, split_bytes: int, splits_min: int) -> Sequence[SplitSize]:
        mapped, sizes = self._opened(log), {"split_bytes": split_bytes, "splits_min": splits_min}
        with self._telling_damage(log):
            return mapped.splits(span.after, span.upto, partition=span.partition, query=query, **sizes)

    def scan(
        self,
        log: str,
        span: Span,
        query: Query,
        columns: Sequence[str],
        batch_bytes: Callable[[], int] = lambda: PIECE_BYTES_MAX,
    ) -> Iterator[pa.RecordBatch]:
        mapped = self._opened(log)
        with self._telling_damage(log):
            batches = mapped.scan(
                span.after,
                span.upto,
                partition=span.partition,
                query=query,
                columns=columns,
                batch_bytes=batch_bytes,
            )
        return self._taken(log, batches)

    def sending(self, user: User, peer: str, ticket: Ticket) -> Sending:
        return self.sendings.begin(user.name, peer, ticket)

    def lender(self, user: User, body: LendBody) -> Lender:
        return Lender() if self._lending is None else self._lending.lender(user, body)

    # Writing

    def append(self, command: AppendCommand, batch: pa.RecordBatch) -> Appended:
        with _handed_over(batch) as path:
            return self._link.call("append", path, encode(command), type=Appended)

    def stage(self, user: User, command: StageCommand, schema: pa.Schema) -> OpenStage:
        place = self.place(command.log)
        directory = place.directory
        check_own(claim(Path(directory), command.writer, user.name), user, command.log, self.authorize)
        with self._mapping:
            staging = self._stagings.pop(directory, None) or Staging(
                Path(directory),
                bytes_max=self._staged_bytes_max,
                reserve_bytes=self._disk_reserve_bytes,
                held=self._memory,
            )
            self._stagings[directory] = staging
            while len(self._stagings) > STAGINGS_MAX:
                self._stagings.popitem(last=False)
        staging.settings = place.settings
        return staging.stage(command.writer, command.batch, command.part, command.attempt, schema)

    # Other calls

    def act(self, user: User, name: str, body: bytes) -> bytes:
        return self._link.call("act", user.name, name, body, type=bytes)

    def _lent(self, user: User, body: LendBody, pid: int) -> Lent | None:
        """The segments to lend, which count as sent. Raises the same errors as `flight.server.reads.span_of` and
        MappedLog.scan.
        """
        ticket = Ticket(body.log, body.after, body.upto, incarnation=body.incarnation)
        span, _ = span_of(self, ticket)
        mapped = self._opened(body.log)
        if (lent := mapped.lend(span.after, span.upto)) is None:
            return None
        try:
            span_of(self, ticket)  # check again, because events trimmed in between would be missing without an error
            events = mapped.count(lent.loan.after, lent.loan.upto)
        except BaseException:
            lent.close()
            raise
        sending = self.sending(user, f"process {pid}", ticket)
        sending.sent(events)
        sending.end()
        return lent

    def _opened(self, log: str) -> MappedLog:
        """The log, mapped up to its current head."""
        place = self.place(log)
        with self._mapping:
            mapped = self._mapped.pop(place.directory, None)
            if mapped is None:
                mapped = MappedLog(Path(place.directory))
            self._mapped[place.directory] = mapped
            while len(self._mapped) > MAPPED_MAX:
                self._mapped.popitem(last=False)  # its maps are released when its last scan ends
        with self._telling_damage(log):
            mapped.refresh(place.extent.head, place.distrusted)
        return mapped

    def _taken(self, log: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with self._telling_damage(log):
            yield from batches

    @contextmanager
    def _telling_damage(self, log: str) -> Iterator[None]:
        """Report damage that a read found to the server, which has not read the file itself."""
        try:
            yield
        except StorageCorrupted as error:
            self._link.tell("damaged", log, error.path)
            raise

    def let_go(self) -> None:
        """Release deleted logs and trimmed segments, which stay on disk until then."""
        with self._mapping:
            mapped_logs = list(self._mapped.items())
        for directory, mapped in mapped_logs:
            try:
                mapped.refresh(mapped.head)
            except EventLogError:  # a reader of the log gets the error
                with self._mapping:
                    self._mapped.pop(directory, None)


@contextmanager
def _handed_over(batch: pa.RecordBatch) -> Iterator[str]:
    """The path of a file with the batch, which the server maps; in memory where the system has such files."""
    with _unnamed_file() as file:
        with pa.ipc.new_stream(file, batch.schema) as stream:
            stream.write_batch(batch)
        file.flush()
        yield f"/proc/{os.getpid()}/fd/{file.fileno()}" if isinstance(file.name, int) else file.name


def _unnamed_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("headwater-batch"), "wb")
    return tempfile.NamedTemporaryFile(prefix="headwater-batch-")
