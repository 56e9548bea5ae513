"""What the Flight server of the bulk process works on: logs mapped read-only here; the server does everything else."""

from __future__ import annotations

import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa

from ...core.access import Credentials, Right, User
from ...core.condition import AppendCondition
from ...core.consumer import Consumer
from ...core.errors import EventLogError
from ...core.extent import SplitSize
from ...core.log import LogInfo
from ...core.mark import Committed, WriterState
from ...core.query import Query
from ...core.settings import LogSettings
from ...flight.backend import Login, LogPlace, Span
from ...flight.wire import Appended, OnDuplicate
from ...storage.mapped import MappedLog
from ...storage.staging import StagedFile, Staging
from .link import Link

MAPPED_MAX = 128
"""Logs that are kept mapped; those used longest ago are let go."""
STAGINGS_MAX = 1024
"""Logs for which it is kept how much is staged."""


class BulkBackend:
    """See flight.backend.Backend. Any thread may call it."""

    def __init__(self, link: Link, *, staged_bytes_max: int, disk_reserve_bytes: int) -> None:
        self._link = link
        self._staged_bytes_max, self._disk_reserve_bytes = staged_bytes_max, disk_reserve_bytes
        self._mapped: OrderedDict[str, MappedLog] = OrderedDict()
        """By directory, which is another one for each incarnation of a log."""
        self._stagings: OrderedDict[str, Staging] = OrderedDict()
        """By directory, too."""
        self._mapping = threading.Lock()

    # Who asks

    def authenticate(self, credentials: Credentials | None, peer: str) -> Login:
        """See Backend."""
        name, secret = ("", None) if credentials is None else (credentials.name, credentials.secret)
        return self._link.call("authenticate", name, secret, peer, type=Login)

    def user(self, name: str, seal: str, peer: str) -> User:
        """See Backend."""
        return self._link.call("user", name, seal, peer, type=User)

    def authorize(self, user: User, right: Right, log: str) -> None:
        """See Backend."""
        if not user.may(right, log):
            self._link.call("authorize", user.name, right, log, type=type(None))

    # Reading

    def logs(self) -> list[str]:
        """See Backend."""
        return self._link.call("logs", type=list[str])

    def info(self, log: str) -> LogInfo:
        """See Backend."""
        return self._link.call("info", log, type=LogInfo)

    def place(self, log: str) -> LogPlace:
        """See Backend."""
        return self._link.call("place", log, type=LogPlace)

    def check_position(self, log: str, position: int) -> None:
        """See Backend."""
        self._link.call("check_position", log, position, type=type(None))

    def sequence_number_at(self, log: str, recorded_at: int) -> int:
        """See Backend."""
        return self._link.call("sequence_number_at", log, recorded_at, type=int)

    def count(self, log: str, span: Span) -> int:
        """See Backend."""
        return self._opened(log).count(span.after, span.upto, span.partition)

    def splits(self, log: str, span: Span, *, split_bytes: int, splits_min: int) -> Sequence[SplitSize]:
        """See Backend."""
        return self._opened(log).splits(
            span.after, span.upto, split_bytes=split_bytes, splits_min=splits_min, partition=span.partition
        )

    def scan(self, log: str, span: Span, query: Query, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """See Backend."""
        mapped = self._opened(log)
        return mapped.scan(span.after, span.upto, partition=span.partition, query=query, columns=columns)

    # Writing

    def append(
        self,
        log: str,
        batch: pa.RecordBatch,
        *,
        partition: int | None,
        condition: AppendCondition | None,
        on_duplicate: OnDuplicate,
    ) -> Appended:
        """See Backend."""
        with _handed_over(batch) as path:
            return self._link.call("append", log, path, partition, condition, on_duplicate, type=Appended)

    def stage(self, log: str, writer: str, batch: int, part: int, attempt: int, schema: pa.Schema) -> StagedFile:
        """See Backend."""
        place = self.place(log)
        directory = place.directory
        with self._mapping:
            staging = self._stagings.pop(directory, None) or Staging(
                Path(directory), bytes_max=self._staged_bytes_max, reserve_bytes=self._disk_reserve_bytes
            )
            self._stagings[directory] = staging
            while len(self._stagings) > STAGINGS_MAX:
                self._stagings.popitem(last=False)
        staging.settings = place.settings
        return staging.stage(writer, batch, part, attempt, schema)

    def commit(
        self,
        log: str,
        writer: str,
        batch: int,
        stages: Sequence[str],
        *,
        partition: int | None,
        condition: AppendCondition | None,
        on_duplicate: OnDuplicate,
    ) -> Committed:
        """See Backend."""
        asked = (log, writer, batch, stages, partition, condition, on_duplicate)
        return self._link.call("commit", *asked, type=Committed)

    def discard(self, log: str, writer: str, batch: int, *, gives_up: bool) -> None:
        """See Backend."""
        self._link.call("discard", log, writer, batch, gives_up, type=type(None))

    def writer(self, log: str, writer: str) -> WriterState | None:
        """See Backend."""
        return self._link.call("writer", log, writer, type=WriterState | None)  # type: ignore[arg-type]

    # Managing

    def create_log(self, log: str, settings: LogSettings | None) -> LogInfo:
        """See Backend."""
        return self._link.call("create_log", log, settings, type=LogInfo)

    def trim(self, log: str, below: int) -> int:
        """See Backend."""
        return self._link.call("trim", log, below, type=int)

    def consumers(self, log: str) -> list[Consumer]:
        """See Backend."""
        return self._link.call("consumers", log, type=list[Consumer])

    def consumer(self, log: str, owner: str, component: str) -> Consumer | None:
        """See Backend."""
        found = (its for its in self.consumers(log) if (its.owner, its.component) == (owner, component))
        return next(found, None)

    def register_consumer(self, log: str, owner: str, component: str, after: int | None) -> Consumer:
        """See Backend."""
        return self._link.call("register_consumer", log, owner, component, after, type=Consumer)

    def acknowledge(self, log: str, owner: str, component: str, sequence_number: int, epoch: int | None) -> Consumer:
        """See Backend."""
        return self._link.call("acknowledge", log, owner, component, sequence_number, epoch, type=Consumer)

    def unregister_consumer(self, log: str, owner: str, component: str) -> None:
        """See Backend."""
        self._link.call("unregister_consumer", log, owner, component, type=type(None))

    def _opened(self, log: str) -> MappedLog:
        """The log, mapped up to its present head."""
        place = self.place(log)
        with self._mapping:
            mapped = self._mapped.pop(place.directory, None)
            if mapped is None:
                mapped = MappedLog(Path(place.directory))
            self._mapped[place.directory] = mapped
            while len(self._mapped) > MAPPED_MAX:
                self._mapped.popitem(last=False)  # its maps go when the last scan of it ends
        mapped.refresh(place.extent.head)
        return mapped

    def let_go(self) -> None:
        """Forget the logs that were deleted, and the segments that were trimmed: so long the disk has them still."""
        with self._mapping:
            mapped_logs = list(self._mapped.items())
        for directory, mapped in mapped_logs:
            try:
                mapped.refresh(mapped.head)
            except EventLogError:  # whoever reads it is told why
                with self._mapping:
                    self._mapped.pop(directory, None)


@contextmanager
def _handed_over(batch: pa.RecordBatch) -> Iterator[str]:
    """The path of a file of that batch, which the server maps; in memory where the system has such files."""
    with _unnamed_file() as file:
        with pa.ipc.new_stream(file, batch.schema) as stream:
            stream.write_batch(batch)
        file.flush()
        yield f"/proc/{os.getpid()}/fd/{file.fileno()}" if isinstance(file.name, int) else file.name


def _unnamed_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("headwater-batch"), "wb")
    return tempfile.NamedTemporaryFile(prefix="headwater-batch-")
