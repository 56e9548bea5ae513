"""The Delta table of one log: who may add to it, and the one commit that adds.

The table is the truth: `archived`, the number up to which the log is in it, is stored by the very commit that adds the
files (as the version of an application transaction, a plain feature of Delta). No Spark here.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from .. import delta
from ..durable import sync
from .columns import DATE, TABLE_SCHEMA
from .errors import ArchiveFenced, CompactionOvertaken, NotAnArchive
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
)

_PLAIN = {
    "delta.appendOnly": "true",
    "delta.dataSkippingStatsColumns": "sequence_number,recorded_at,type",
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.logRetentionDuration": "interval 7 days",
}


class ArchiveTable:
    """One archive, opened to add to it. For one thread at a time; any number of them may be open at once."""

    def __init__(self, path: Path) -> None:
        """Open what is there. Raises NotAnArchive."""
        self.path = path
        self._table = delta.open_table(path, NotAnArchive)
        self.state = state_of(self._table, path)
        self._synced: int | None = None
        """The version up to which Delta's log is known to be on the disk."""

    @staticmethod
    def create(path: Path, log: str, incarnation: str, first: int) -> ArchiveTable:
        """Make an empty table, or open the one that is there: then `first` counts for nothing. Raises NotAnArchive."""
        try:
            if not is_archive(path):
                _create(path, {LOG: log, INCARNATION: incarnation, FIRST: str(first)})
        except OSError as error:
            raise NotAnArchive(str(path), f"no table can be made there: {error.strerror}") from error
        table = ArchiveTable(path)
        check_log(path, table.state.log, log)
        return table

    def refresh(self) -> ArchiveState:
        """What the table says now."""
        self._table.update_incremental()
        self.state = state_of(self._table, self.path)
        return self.state

    def claim(self, claim: int) -> None:
        """From now on only who shows this claim, or a larger one, can add. Raises ArchiveFenced if one is larger."""
        for _ in range(delta.COMMIT_TRIES):
            state = self.refresh()
            if state.claim > claim:
                raise ArchiveFenced(str(self.path), claim, state.claim)
            if state.claim == claim or self._try([], [Transaction(claim_transaction(state.log), claim)], {}):
                break
        if self.refresh().claim != claim:
            raise ArchiveFenced(str(self.path), claim, self.state.claim)

    def follow_log(self, incarnation: str) -> None:
        """The log is another incarnation than the table knew; its numbers go on above all that were ever given."""
        self._table.alter.set_table_properties({INCARNATION: incarnation}, raise_if_not_exists=False)
        self.refresh()

    def commit(self, files: Sequence[StagedParquet], after: int, upto: int, claim: int) -> None:
        """Add files with the log's events from `after` to `upto`, in one durable step: all of them, or nothing.

        Raises ArchiveFenced, where `claim` is not the newest one, or another archiver has added since `after`.
        """
        actions = [_add_action(file) for file in files]
        for _ in range(delta.COMMIT_TRIES):
            state = self.refresh()
            if state.claim != claim or state.archived != after:
                raise ArchiveFenced(str(self.path), claim, state.claim)
            transactions = [
                Transaction(archive_transaction(state.log), upto + 1),
                Transaction(claim_transaction(state.log), claim),
            ]
            told = {"headwater.after": str(after), "headwater.upto": str(upto), "headwater.claim": str(claim),
                    **_metrics(numFiles=len(files), numOutputRows=sum(file.events for file in files),
                               numOutputBytes=sum(file.bytes for file in files))}  # fmt: skip
            if self._try(actions, transactions, told):
                break
        state = self.refresh()
        if state.claim != claim or state.archived != upto:
            raise ArchiveFenced(str(self.path), claim, state.claim)
        if self.state.version % delta.CHECKPOINT_COMMITS == 0:
            self.sum_up()

    def replace(self, removed: Mapping[str, int], date: str, added: Sequence[StagedParquet]) -> None:
        """Put files with the same events of a date in the place of others (with their bytes), in one durable step.

        Raises CompactionOvertaken if somebody else did so since the table was opened, or refreshed.
        """
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            *map(partial(_add_action, is_change=False), added),
            *(RemoveAction(path, False, now_ms, partition_values={DATE: date}) for path in removed),
        ]
        compaction = compaction_transaction(self.state.log)
        number = (self._table.transaction_version(compaction) or 0) + 1
        told = _metrics(numAddedFiles=len(added), numAddedBytes=sum(file.bytes for file in added),
                        numRemovedFiles=len(removed), numRemovedBytes=sum(removed.values()))  # fmt: skip
        if not self._try(actions, [Transaction(compaction, number)], told):
            raise CompactionOvertaken(str(self.path), date)
        self.refresh()

    def vacuum(self, hours: int) -> int:
        """See `compaction.vacuum`."""
        removed = self._table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        self.refresh()
        return len(removed)

    def sum_up(self) -> None:
        """See `delta.sum_up`."""
        delta.sum_up(self._table, self.path)

    def _try(
        self, actions: Sequence[AddAction | RemoveAction], transactions: list[Transaction], told: dict[str, Any]
    ) -> bool:
        """One commit on top of the version that `refresh` saw; False if another one with such a transaction was first.

        What Delta's log says is on the disk when this returns: the log's own server forgets events because of it.
        """
        try:
            self._table.create_write_transaction(
                list(actions),
                "append",
                self._table.schema(),
                [DATE],
                commit_properties=CommitProperties(custom_metadata=told, app_transactions=transactions),
                post_commithook_properties=delta.NO_HOOKS,
            )
        except CommitFailedError:
            return False
        self._sync_log()
        return True

    def _sync_log(self) -> None:
        """Make Delta's log durable, also what somebody else wrote who was killed before it could."""
        entries: list[Path] = []
        if self._synced is None:
            checkpoint, entries = delta.newest_checkpoint(self.path)
            known = [delta.entry(self.path, version) for version in range(checkpoint + 1, self.state.version + 1)]
            entries += [file for file in known if file.exists()]
            self._synced = self.state.version
        new = delta.entries_after(self.path, self._synced)
        self._synced += len(new)
        sync([*entries, *new], self.path)


def _create(path: Path, properties: dict[str, str]) -> None:
    if path.exists() and any(not other.name.startswith("_") for other in path.iterdir()):
        raise NotAnArchive(str(path), "a new archive needs an empty directory, and there are other files")
    path.mkdir(parents=True, exist_ok=True)
    # If another archiver makes it at this moment, that one's is as good; what else is wrong shows when it is opened.
    with contextlib.suppress(DeltaError):
        DeltaTable.create(
            path,
            Schema.from_arrow(TABLE_SCHEMA),
            partition_by=[DATE],
            name=properties[LOG],
            description=f"Headwater's archive of log {properties[LOG]}",
            configuration=_PLAIN | properties,
            raise_if_key_not_exists=False,
        )
        sync([delta.entry(path, 0)], path.parent)


def _add_action(file: StagedParquet, is_change: bool = True) -> AddAction:
    """How Delta is told of a file; its statistics let readers leave out files by number, by time and by type."""
    lowest, highest = ({}, {}) if file.types is None else ({"type": each} for each in file.types)
    stats = {
        "numRecords": file.events,
        "minValues": {"sequence_number": file.first, "recorded_at": _timestamp(file.recorded_from)} | lowest,
        "maxValues": {"sequence_number": file.last, "recorded_at": _timestamp(file.recorded_upto)} | highest,
        "nullCount": {"sequence_number": 0, "recorded_at": 0, "type": 0},
    }
    now_ms = time.time_ns() // 1_000_000
    return AddAction(file.path, file.bytes, {DATE: file.date}, now_ms, is_change, json.dumps(stats))


def _metrics(**numbers: int) -> dict[str, Any]:
    """What a commit did, as Delta's history shows it: under Delta's names, and as texts, as Spark writes them."""
    return {"operationMetrics": {name: str(number) for name, number in numbers.items()}}


def _timestamp(ms: int) -> str:
    """As Delta writes it in statistics."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03d}Z"
