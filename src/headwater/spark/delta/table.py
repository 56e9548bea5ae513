"""Our Delta tables: how each is created, opened and compared with its digest, and how commits are made.

No Spark here.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from ...core.errors import EventLogError
from ..durable import sync
from .digest import Description, added_digests, file_digests, state_digest
from .log import entries_after, entry, newest_checkpoint, read_entry
from .marks import WRITER, DamagedEntry, Mark, NewerEntry, changes_state, mark_in

logger = logging.getLogger("headwater.spark")

_warned: set[str] = set()
"""The tables for which a warning has been logged."""
Refused = Callable[[str, str], EventLogError]
"""Makes an error from the path of a table and its problem."""
COMMIT_TRIES = 25
"""Other programs may commit in between, but not this many times in a row."""
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""A commit does nothing else: `sum_up` does the rest, durably."""

_HINT = "if its _delta_log is damaged, restore that from a backup"
_OTHERS_READ = 20
"""If there are more entries by other programs, the state counts as changed by them."""


class Table:
    """A Delta table at one version, compared with the digest that the version was committed with."""

    def __init__(self, path: Path | str, refused: Refused, version: int | None = None) -> None:
        """Open the table at that path or URI. Raises the error of `refused`, including when its digest differs."""
        self._path, self._refused = path, refused
        self._synced: int | None = None
        """The version up to which Delta's log is known to be synced."""
        self._covered: tuple[str, ...] = ()
        with self._refusing():
            self._table = DeltaTable(path, version=version)
        self._mark = self._verified()

    @property
    def version(self) -> int:
        """The version opened."""
        version: int = self._table.version()
        return version

    @property
    def root(self) -> str:
        """The location of the table's files: a path if they are local, otherwise the URI."""
        found = urlsplit(self._table.table_uri)
        return unquote(found.path) if found.scheme in ("", "file") else self._table.table_uri

    @property
    def unproved_since(self) -> int | None:
        """The version since which no digest proves the state; None if it is proved."""
        return self._mark.unproved_since

    def warn_if_unproved(self, remedy: str) -> None:
        """Log a warning if no digest proves the state: once per table and process."""
        if self.unproved_since is not None and self.root not in _warned:
            _warned.add(self.root)
            problem = f"since version {self.unproved_since} the table's log has no digest: another program committed"
            logger.warning("%s: %s, or a headwater older than 0.2; %s", self._path, problem, remedy)

    @cached_property
    def configuration(self) -> Mapping[str, str]:
        """The table's properties."""
        return self._table.metadata().configuration

    @cached_property
    def schema(self) -> Schema:
        """The table's columns."""
        return self._table.schema()

    @cached_property
    def actions(self) -> pa.Table:
        """The files, with their statistics, as the Delta library lists them."""
        with self._refusing():
            return pa.table(self._table.get_add_actions(flatten=True))

    @property
    def reader_features(self) -> frozenset[str]:
        """The features that a reader must support, by the names of Delta's protocol."""
        protocol = self._table.protocol()
        return frozenset(protocol.reader_features or (["columnMapping"] if protocol.min_reader_version == 2 else []))

    def is_ours_since(self, version: int) -> bool:
        """Whether that version and each later one has a digest. If so, proving it proves the later versions.

        Raises the error of `refused`.
        """
        with self._refusing():
            entries = (read_entry(self.root, later) for later in range(version, self.version + 1))
            return all(entry is not None and mark_in(entry) is not None for entry in entries)

    def transaction(self, name: str) -> int | None:
        """The version of an application transaction; None if there was none.

        The mark contains ours. The Delta library would search the whole log for old ones.
        """
        if name in self._mark.transactions:
            return self._mark.transactions[name]
        return self._told_of(name)

    def cover(self, *transactions: str) -> None:
        """Declare our application transactions. Digests include them from the next commit on, or earlier."""
        self._covered = transactions

    def refresh(self) -> None:
        """Move to the newest version. Raises the error of `refused`."""
        with self._refusing():
            self._table.update_incremental()
        if self.version != self._mark.version:  # otherwise it was compared earlier
            self._mark = self._verified()

    def commit(
        self,
        actions: Sequence[AddAction | RemoveAction],
        transactions: Mapping[str, int],
        metadata: Mapping[str, Any] | None = None,
        *,
        is_proof: bool = False,
    ) -> bool:
        """Make one durable commit directly on top of the opened version. Returns False if another commit was first.

        Raises the error of `refused` if the table accepts none, for example because another program requires features.
        With `is_proof` the state counts as proved from then on: see `is_ours_since`.
        """
        files = dict(self._files)
        for action in actions:
            if isinstance(action, RemoveAction):
                files.pop(action.path, None)
        files |= added_digests([action for action in actions if isinstance(action, AddAction)], self.schema)
        mark = self._next_mark(state_digest(files.values(), self._description()), transactions, is_proof)
        return self._committed(
            lambda: self._table.create_write_transaction(
                list(actions),
                "append",
                self.schema,
                self._table.metadata().partition_columns,
                commit_properties=_properties(mark, transactions, metadata),
                post_commithook_properties=NO_HOOKS,
            )
        )

    def commit_properties(self, properties: Mapping[str, str]) -> bool:
        """Like `commit`, for the properties of the table."""
        description = self._description()
        description = description._replace(configuration={**description.configuration, **properties})
        mark = self._next_mark(state_digest(self._files.values(), description), {})
        return self._committed(
            lambda: self._table.alter.set_table_properties(
                dict(properties),
                raise_if_not_exists=False,
                commit_properties=_properties(mark),
                post_commithook_properties=NO_HOOKS,
            )
        )

    def vacuum(self, hours: float) -> int:
        """Remove the files that no version within the last `hours` hours needs. Returns how many."""
        with self._refusing():
            found = self._table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)  # type: ignore[arg-type]
        for file in found:
            (Path(self._path) / file).unlink(missing_ok=True)
        return len(found)

    def sum_up(self) -> None:
        """Write a checkpoint of the table's log, durably; then drop its entries that are older than it keeps them."""
        path = Path(self._path)
        with self._refusing():
            self._table.create_checkpoint()
        version, files = newest_checkpoint(path)
        sync(files, path)
        read_back = Table(path, self._refused, version)  # older entries are removed only if the checkpoint is correct
        with self._refusing():
            if read_back._told_of(WRITER) != self._told_of(WRITER):
                raise DamagedEntry("its checkpoint names another version as the newest one")
            self._table.cleanup_metadata()

    def sync_log(self) -> None:
        """Sync Delta's log, including entries of another program that was killed before it could."""
        path = Path(self._path)
        entries: list[Path] = []
        if self._synced is None:
            checkpoint, entries = newest_checkpoint(path)
            known = [entry(path, version) for version in range(checkpoint + 1, self.version + 1)]
            entries += [file for file in known if file.exists()]
            self._synced = self.version
        new = entries_after(path, self._synced)
        self._synced += len(new)
        sync([*entries, *new], path)

    def _committed(self, write: Callable[[], object]) -> bool:
        """Whether the library's commit was made durably. False if another commit was first."""
        with self._refusing():
            try:
                write()
            except CommitFailedError as error:
                self._check_overtaken(error)
                return False
        self.sync_log()
        return True

    def _check_overtaken(self, error: CommitFailedError) -> None:
        """Raises the error of `refused` if no other commit was first: the next attempt would fail the same way."""
        if not entry(Path(self._path), self.version + 1).exists():
            raise self._refused(str(self._path), f"cannot commit to the table: {error}") from error

    def _told_of(self, transaction: str) -> int | None:
        with self._refusing():
            version: int | None = self._table.transaction_version(transaction)
            return version

    def _verified(self) -> Mark:
        """The mark of the opened state. Raises the error of `refused` if a different state was committed."""
        for name in ("configuration", "schema", "actions", "_files"):
            self.__dict__.pop(name, None)
        with self._refusing():
            return self._compared()

    def _compared(self) -> Mark:
        content = read_entry(self.root, self.version)
        mark = None if content is None else mark_in(content)
        if mark is None:
            if (newest := self._told_of(WRITER)) != self.version:
                return self._of_another_program(newest)
            raise DamagedEntry("its entry is missing" if content is None else "its entry has no digest")
        if mark.version != self.version:
            raise DamagedEntry(f"its entry belongs to version {mark.version}")
        self._compare(mark)
        return mark

    def _compare(self, mark: Mark) -> None:
        if state_digest(self._files.values(), self._description()) != mark.digest:
            raise DamagedEntry("its files or properties do not match its digest")

    def _of_another_program(self, newest: int | None) -> Mark:
        """The mark for a version made by another program, or by our versions before 0.2."""
        if newest is None:
            return Mark(self.version, "", {}, 0)
        if newest > self.version:
            raise DamagedEntry(f"it names version {newest} as the previous one")
        ours = read_entry(self.root, newest)
        mark = None if ours is None else mark_in(ours)
        if self._is_changed_since(newest) or mark is None:
            unproved_since = newest + 1 if mark is None or mark.unproved_since is None else mark.unproved_since
            return Mark(self.version, "", {}, unproved_since)
        self._compare(mark)
        return mark

    def _is_changed_since(self, version: int) -> bool:
        """Whether other programs' entries after that version change the state."""
        is_changed = False
        for later in range(max(version + 1, self.version - _OTHERS_READ), self.version + 1):
            if (content := read_entry(self.root, later)) is not None:
                is_changed |= changes_state(content)
            elif later == self.version:
                raise DamagedEntry("its entry is missing")
            else:
                is_changed = True
        return is_changed or self.version - version > _OTHERS_READ

    def _next_mark(self, digest: str, transactions: Mapping[str, int], is_proof: bool = False) -> Mark:
        names = {*self._covered, *self._mark.transactions}
        known = {name: version for name in names if (version := self.transaction(name)) is not None}
        return Mark(
            self.version + 1, digest, {**known, **transactions}, None if is_proof else self._mark.unproved_since
        )

    def _description(self) -> Description:
        about = self._table.metadata()
        return Description(
            self.schema, about.partition_columns, about.name, about.description, dict(self.configuration)
        )

    @cached_property
    def _files(self) -> dict[str, int]:
        return file_digests(self.actions)

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turns errors of the Delta library, and a differing digest, into the error of `refused`."""
        try:
            yield
        except TableNotFoundError:
            raise self._refused(str(self._path), "there is no Delta table") from None
        except DeltaError as error:
            raise self._refused(str(self._path), f"the Delta table cannot be read: {error}; {_HINT}") from error
        except NewerEntry:
            problem = f"version {self.version} of the table, or one before it, was written by a newer headwater"
            raise self._refused(str(self._path), f"{problem}; use a newer headwater") from None
        except DamagedEntry as error:
            problem = f"version {self.version} of the table does not match its commit: {error}"
            where = f"_delta_log/{self.version:020d}.json, an entry before it or a checkpoint"
            hint = f"{where} is damaged; restore _delta_log from a backup"
            raise self._refused(str(self._path), f"{problem}; {hint}") from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # the library's error for damage that it does not expect
                raise
            raise self._refused(str(self._path), f"the Delta table cannot be read: {error}; {_HINT}") from error


def is_table(path: Path) -> bool:
    """Whether there is a Delta table at that path."""
    return DeltaTable.is_deltatable(str(path))


def create_table(path: Path, description: Description) -> None:
    """Create an empty table durably. A table that another program creates at the same time is left alone."""
    mark = Mark(0, state_digest([], description), {}, None)
    # Other errors appear when it is opened.
    with contextlib.suppress(DeltaError):
        DeltaTable.create(
            path,
            description.schema,
            partition_by=list(description.partition_columns),
            name=description.name,
            description=description.description,
            configuration=description.configuration,
            commit_properties=_properties(mark),
            raise_if_key_not_exists=False,
        )
        sync([entry(path, 0)], path.parent)


def _properties(
    mark: Mark, transactions: Mapping[str, int] | None = None, metadata: Mapping[str, Any] | None = None
) -> CommitProperties:
    """For a commit that becomes the mark's version or fails."""
    return CommitProperties(
        custom_metadata={**(metadata or {}), **mark.metadata},
        app_transactions=[Transaction(*each) for each in [*(transactions or {}).items(), (WRITER, mark.version)]],
        max_commit_retries=0,
    )
