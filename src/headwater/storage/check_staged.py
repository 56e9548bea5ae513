"""Verification of what is staged: manifests of commits that have begun, and every byte of every part."""

from __future__ import annotations

from pathlib import Path

from ..core.errors import EventLogError
from .newer import WrittenByNewer
from .staged_frames import TABLE_SUFFIX, check_segments
from .staged_part import PART_SUFFIX, check_part, is_plain
from .staging import MANIFEST_FORMAT, STAGED, Manifest, check_stages, read_manifest


def check_staged(log_directory: Path, problems: list[str], notes: list[str]) -> None:
    """Check a log's staged batches: add damage to `problems`, and remarks to `notes`.

    Raises OSError, WrittenByNewer.
    """
    for directory in sorted(path for path in log_directory.glob(f"{STAGED}/*/*") if path.is_dir()):
        try:
            manifest = read_manifest(directory)
            if manifest is not None:
                check_stages(directory, manifest.stages)
        except WrittenByNewer:
            raise
        except EventLogError as error:
            problems.append(str(error))
            manifest = None
        for path in sorted(directory.glob(f"*{PART_SUFFIX}")):
            _check_part(path, manifest, problems, notes)
        for path in sorted(directory.glob(f"*{TABLE_SUFFIX}")):
            try:
                check_segments(directory, path.stem)
            except WrittenByNewer:
                raise
            except EventLogError as error:
                problems.append(str(error))


def _check_part(path: Path, manifest: Manifest | None, problems: list[str], notes: list[str]) -> None:
    may_be_plain = manifest is not None and manifest.format < MANIFEST_FORMAT
    try:
        if manifest is None and is_plain(path):
            notes.append(
                f"{path}: there is no checksum behind it (0.1.0 wrote none): its writer is told to stage again"
            )
        else:
            check_part(path, may_be_plain=may_be_plain)
    except WrittenByNewer:
        raise
    except EventLogError as error:
        problems.append(str(error))
