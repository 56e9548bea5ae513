"""The manifest of a backup: its last file, with the size and CRC32C of every other file, and the damage of its logs.

Before format 3 it had no checksums. Such a backup is read as before, and its files cannot be verified.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from shlex import quote

import msgspec

from ...core.errors import StorageCorrupted, StorageUnavailable
from ..catalog.directories import LOGS
from ..disk.checked_file import CheckedFile, earlier_struct
from ..disk.locks import LOCK
from ..disk.summed_copy import FileSum, sum_of
from ..state.data_directory import has_data
from ..state.files import SHARED_MEMORY, STATE_NAME, changes_path, files_of

MANIFEST = "BACKUP.json"
MANIFEST_FORMAT = 3
FORMAT_SUMMED = 3
"""From this format on, it has checksums."""
UNPROVED = (
    "the backup was made by an earlier version without file checksums, so missing or changed files cannot be detected"
)
_REMEDY = "make another backup"


class BackupManifest(msgspec.Struct):
    """The last file of a backup: with it, the backup is complete."""

    created_at: int
    """Milliseconds since 1970 UTC."""
    logs: dict[str, int]
    """The head of each log."""
    files: dict[str, FileSum] = {}
    """The checksum of each file, by path in the backup."""
    damaged: dict[str, list[str]] = {}
    """The damage of each log at the time of the copy."""
    format: int = MANIFEST_FORMAT

    @property
    def has_sums(self) -> bool:
        """Whether its files can be verified."""
        return self.format >= FORMAT_SUMMED


class _Earlier(msgspec.Struct):
    created_at: int
    logs: dict[str, int]
    format: int


def _earlier(content: bytes) -> BackupManifest:
    found = earlier_struct(content, _Earlier)
    return BackupManifest(found.created_at, found.logs, format=found.format)


_FILE = CheckedFile(MANIFEST, BackupManifest, newest=MANIFEST_FORMAT, checked_from=2, earlier=_earlier, remedy=_REMEDY)


def read_manifest(directory: Path) -> BackupManifest:
    """The manifest of a backup. Raises StorageUnavailable if it is missing or incomplete."""
    try:
        return _FILE.read(directory)
    except (OSError, StorageCorrupted) as error:
        if isinstance(error, FileNotFoundError) and (directory / LOCK).exists() and has_data(directory):
            check, copy = (f"`headwater {each} --data {quote(str(directory))}`" for each in ("check", "backup TARGET"))
            problem = f"not a complete backup, but a data directory: {check} checks it, and {copy} backs it up"
            raise StorageUnavailable(f"{directory}: {problem}") from None
        raise StorageUnavailable(f"{directory}: not a complete backup ({error})") from None


def write_manifest(directory: Path, manifest: BackupManifest) -> None:
    """Durably write the manifest of a backup. Raises OSError."""
    _FILE.write(directory, manifest)


def files_in(directory: Path) -> Iterator[str]:
    """The paths of all files in a directory that belong in a backup: the files of the state and of the logs.

    Reading a state leaves an empty WAL next to it, which does not count.
    """
    state = directory / STATE_NAME
    for path in files_of(state):
        if path.suffix != SHARED_MEMORY and path.exists() and (path.stat().st_size or path != changes_path(state)):
            yield path.name
    for path in sorted((directory / LOGS).rglob("*")):
        if path.is_file():
            yield path.relative_to(directory).as_posix()


def faults_of(directory: Path, manifest: BackupManifest) -> Iterator[str]:
    """Each difference between a backup and its manifest. Raises OSError."""
    if not manifest.has_sums:
        return
    for name in files_in(directory):
        if name not in manifest.files:
            yield f"{directory / name}: the file does not belong to the backup"
    for name, expected in manifest.files.items():
        try:
            found = sum_of(directory / name)
        except FileNotFoundError:
            yield f"{directory / name}: the file is missing"
            continue
        if (fault := fault_of(found, expected)) is not None:
            yield f"{directory / name}: {fault}"


def fault_of(found: FileSum, expected: FileSum) -> str | None:
    """How a file differs from the copied one; None if it does not."""
    if found.bytes != expected.bytes:
        return f"expected {expected.bytes} bytes, got {found.bytes}"
    return None if found == expected else "its content was changed"


def check_paths(directory: Path, manifest: BackupManifest) -> None:
    """Raises StorageUnavailable if the manifest names a file outside the backup."""
    for name in manifest.files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise StorageUnavailable(f"{directory}: not a backup ({MANIFEST} names {name!r})")
