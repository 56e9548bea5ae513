"""The Delta table of one log: its claims, and the one commit that adds events.

The table is authoritative: `archived`, the number up to which it contains the log, is stored by the same commit that
adds the files (as the version of an application transaction, a plain feature of Delta). No Spark here.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from deltalake import Schema
from deltalake.transaction import AddAction, RemoveAction

from ...formats.files.own_directory import foreign_name
from ..delta.digest import Description
from ..delta.log import CHECKPOINT_COMMITS
from ..delta.table import COMMIT_TRIES, Table, create_table
from .columns import DATE, TABLE_SCHEMA
from .errors import ArchiveError, ArchiveFenced, CompactionOvertaken, NotAnArchive
from .staging import StagedParquet
from .state import (
    FIRST,
    INCARNATION,
    LOG,
    ArchiveState,
    archive_transaction,
    check_log,
    claim_transaction,
    compaction_transaction,
    is_archive,
    state_of,
    transactions_of,
)

_PLAIN = {
    "delta.appendOnly": "true",
    "delta.dataSkippingStatsColumns": "sequence_number,recorded_at,type",
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.logRetentionDuration": "interval 7 days",
}

_BUSY = "cannot commit to the table because of concurrent commits; try again later"


class ArchiveTable:
    """One archive, opened to add to it. Use it from one thread at a time. Any number of instances may be open at
    once.
    """

    def __init__(self, path: Path) -> None:
        """Open an existing table. Raises NotAnArchive."""
        self.path = path
        self._table = Table(path, NotAnArchive)
        self.state = state_of(self._table, path)
        self._table.cover(*transactions_of(self.state.log))

    @staticmethod
    def create(path: Path, log: str, incarnation: str, first: int) -> ArchiveTable:
        """Create an empty table, or open the existing one, ignoring `first`. Raises NotAnArchive."""
        try:
            if not is_archive(path):
                _create(path, {LOG: log, INCARNATION: incarnation, FIRST: str(first)})
        except OSError as error:
            raise NotAnArchive(str(path), f"cannot create a table there: {error.strerror}") from error
        table = ArchiveTable(path)
        check_log(path, table.state.log, log)
        return table

    def refresh(self) -> ArchiveState:
        """The current state of the table."""
        self._table.refresh()
        self.state = state_of(self._table, self.path)
        return self.state

    def claim(self, claim: int) -> None:
        """From now on, adding events requires this claim or a larger one. Raises ArchiveFenced if the table has a
        larger one.
        """
        for _ in range(COMMIT_TRIES):
            state = self.refresh()
            if state.claim > claim:
                raise ArchiveFenced(str(self.path), claim, state.claim)
            if state.claim == claim or self._table.commit([], {claim_transaction(state.log): claim}):
                break
        if self.refresh().claim != claim:
            raise ArchiveFenced(str(self.path), claim, self.state.claim)

    def follow_log(self, incarnation: str) -> None:
        """Record that the log has another incarnation; its numbers continue above all earlier ones.

        Raises ArchiveError if the table accepts no commit.
        """
        for _ in range(COMMIT_TRIES):
            if self._table.commit_properties({INCARNATION: incarnation}):
                self.refresh()
                return
            self.refresh()
        raise ArchiveError(f"{self.path}: {_BUSY}")

    def commit(self, files: Sequence[StagedParquet], after: int, upto: int, claim: int) -> int:
        """Add files with the log's events from `after` to `upto`, in one durable step: all of them, or nothing.

        Returns the resulting version of the table.

        Raises ArchiveFenced if `claim` is not the newest one, or another archiver has added since `after`.
        """
        actions = [_add_action(file) for file in files]
        for _ in range(COMMIT_TRIES):
            state = self.refresh()
            if state.claim != claim or state.archived != after:
                raise ArchiveFenced(str(self.path), claim, state.claim)
            transactions = {archive_transaction(state.log): upto + 1, claim_transaction(state.log): claim}
            told = {"headwater.after": str(after), "headwater.upto": str(upto), "headwater.claim": str(claim),
                    **_metrics(numFiles=len(files), numOutputRows=sum(file.events for file in files),
                               numOutputBytes=sum(file.bytes for file in files))}  # fmt: skip
            version = state.version + 1
            if self._table.commit(actions, transactions, told):
                break
        state = self.refresh()
        if state.claim != claim or state.archived != upto:
            raise ArchiveFenced(str(self.path), claim, state.claim)
        if self.state.version % CHECKPOINT_COMMITS == 0:
            self.sum_up()
        return version

    def replace(self, removed: Mapping[str, int], date: str, added: Sequence[StagedParquet]) -> None:
        """Replace files (given with their bytes) by files with the same events of a date, in one durable step.

        Raises CompactionOvertaken if another compaction did so since the table was opened or refreshed.
        """
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            *map(partial(_add_action, is_change=False), added),
            *(RemoveAction(path, False, now_ms, partition_values={DATE: date}) for path in removed),
        ]
        compaction = compaction_transaction(self.state.log)
        number = self._table.transaction(compaction) or 0
        told = _metrics(numAddedFiles=len(added), numAddedBytes=sum(file.bytes for file in added),
                        numRemovedFiles=len(removed), numRemovedBytes=sum(removed.values()))  # fmt: skip
        for _ in range(COMMIT_TRIES):
            is_done = self._table.commit(actions, {compaction: number + 1}, told)
            self.refresh()
            if is_done:
                return
            if (self._table.transaction(compaction) or 0) != number or not self._has(removed):
                break
        raise CompactionOvertaken(str(self.path), date)

    def mark(self) -> None:
        """Add a digest to the log, if the newest commit has none. It does not prove anything about earlier commits: see
        `prove`.

        Raises ArchiveError if the table accepts no commit.
        """
        self._commit_empty(lambda: self._table.is_ours_since(self.state.version), is_proof=False)

    def prove(self, version: int) -> None:
        """Record that the state is proved, because all files of that version were verified.

        Raises ArchiveError if another program has committed since then, or the table accepts no commit.
        """
        self._commit_empty(lambda: self._table.unproved_since is None, is_proof=True, since=version)

    def vacuum(self, hours: int) -> int:
        """See `compaction.vacuum`."""
        return self._table.vacuum(hours)

    def sum_up(self) -> None:
        """See `delta.table.Table.sum_up`."""
        self._table.sum_up()

    def _commit_empty(self, is_done: Callable[[], bool], is_proof: bool, since: int | None = None) -> None:
        for _ in range(COMMIT_TRIES):
            self.refresh()
            if is_done():
                return
            if since is not None and not self._table.is_ours_since(since):
                raise ArchiveError(f"{self.path}: another program committed after version {since}; run it again")
            self._table.commit([], {}, is_proof=is_proof)
        raise ArchiveError(f"{self.path}: {_BUSY}")

    def _has(self, files: Iterable[str]) -> bool:
        return set(files) <= set(self._table.actions["path"].to_pylist())


def _create(path: Path, properties: dict[str, str]) -> None:
    if foreign_name(path, lambda name: name.startswith("_")) is not None:
        raise NotAnArchive(str(path), "a new archive needs an empty directory, but there are other files")
    path.mkdir(parents=True, exist_ok=True)
    log = properties[LOG]
    configuration = _PLAIN | properties
    create_table(
        path,
        Description(Schema.from_arrow(TABLE_SCHEMA), [DATE], log, f"Headwater's archive of log {log}", configuration),
    )


def _add_action(file: StagedParquet, is_change: bool = True) -> AddAction:
    """A file's entry for Delta; its statistics let readers leave out files by number, by time and by type."""
    lowest, highest = ({}, {}) if file.types is None else ({"type": each} for each in file.types)
    stats = {
        "numRecords": file.events,
        "minValues": {"sequence_number": file.first, "recorded_at": _timestamp(file.recorded_from)} | lowest,
        "maxValues": {"sequence_number": file.last, "recorded_at": _timestamp(file.recorded_upto)} | highest,
        "nullCount": {"sequence_number": 0, "recorded_at": 0, "type": 0},
    }
    now_ms = time.time_ns() // 1_000_000
    told = json.dumps(stats, ensure_ascii=False)  # the Delta library would corrupt escapes
    return AddAction(file.path, file.bytes, {DATE: file.date}, now_ms, is_change, told)


def _metrics(**numbers: int) -> dict[str, Any]:
    """Metrics of a commit for Delta's history: under Delta's names, and as text, as Spark writes them."""
    return {"operationMetrics": {name: str(number) for name, number in numbers.items()}}


def _timestamp(ms: int) -> str:
    """In the form of Delta's statistics."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03d}Z"
