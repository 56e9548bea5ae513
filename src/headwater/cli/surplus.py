"""Lists the events that only the copy of a stopped server has, and exports them before they are discarded."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.errors import InvalidInput
from ..formats.envelope import encode_event
from ..formats.files.new_file import new_file
from .output import counted

if TYPE_CHECKING:
    from ..core.local import LocalLog
    from ..homes.postgres.home import PostgresHome
    from ..homes.stopped_copy import StoppedCopy
    from ..storage.home.surplus import Surplus


def described(found: Surplus) -> str:
    """The number of events, or of changes of the state, and their sequence numbers."""
    from ..storage.state.journal import NAME

    if not found.size:
        return f"log {found.name}, which has no events"
    what = f"{found.name}: {counted(found.size, 'event')}"
    if found.name == NAME:
        what = f"{counted(found.size, 'change')} of users, consumers, positions and settings"
    return f"{what}, numbered {found.after + 1:,} to {found.last:,}"


def copy_of(home: PostgresHome, data: Path, *, is_named: bool) -> str | None:
    """The ID of a data directory as a copy of that home; None if it is not a copy of it.

    Raises StorageUnavailable if it is not a copy although the user named it; StorageCorrupted.
    """
    from ..homes.stopped_copy import id_of
    from ..storage.home.copy_file import home_of

    return id_of(data, home) if is_named or home_of(data) == home.incarnation else None


def export_given_up(home: PostgresHome, data: Path, target: Path | None) -> bool:
    """List the events that only the copy in `data` has, and write them durably to files in `target`.

    Returns whether there are any. Raises InvalidInput, StorageUnavailable, StorageCorrupted, OSError if some could not
    be written.
    """
    from ..homes.stopped_copy import StoppedCopy

    with StoppedCopy(home, data) as copy:
        if found := copy.given_up():
            _write_all(copy, found, target or Path(f"given-up-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"))
        else:
            click.echo(f"the copy in {data} contains nothing that the database lacks")
    return bool(found)


def _write_all(copy: StoppedCopy, found: list[Surplus], target: Path) -> None:
    from ..storage.disk.system import make_directory, sync_directory
    from ..storage.state.data_directory import is_empty
    from ..storage.state.journal import NAME

    if not is_empty(target):
        raise InvalidInput("not empty; use a new or empty directory", str(target))
    make_directory(target)
    for each in found:
        if each.name == NAME or not each.size:
            click.echo(f"{described(each)}: discarded, not exported")
        else:
            file = target / f"{each.name}.ndjson"
            _write(copy.engine.open(each.name), each.after, file)
            click.echo(f"{described(each)}: discarded; exported to {file}")
    sync_directory(target)


def _write(log: LocalLog, after: int, file: Path) -> None:
    with new_file(file) as out:
        for event in log.read(after=max(after, log.first_retained - 1)):
            out.write(encode_event(event) + b"\n")
        out.flush()
        os.fsync(out.fileno())
