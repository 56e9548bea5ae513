"""Creates the directories of logs and copies, and sets copies aside."""

from __future__ import annotations

import logging
import secrets
import uuid
from collections.abc import Callable
from pathlib import Path

from ...core.clocks import wall_clock_ms
from ...core.errors import EventLogError
from ...core.state import StateStore
from ..disk.system import make_directory, sync_directory
from ..home.witness import nobody_asks
from ..segments.meta import FRAMES, HISTORY, INDEX, Meta, read_meta
from .directories import LOGS, known_logs, unknown_directories
from .identity import known_identity, meta_of

logger = logging.getLogger("headwater.storage")


def new_meta(name: str, floor: int, partitions: int, now: int) -> Meta:
    """The META of a new log, in a new incarnation whose first number follows `floor`; `now` in ms."""
    incarnation = uuid.uuid4().hex
    return Meta(
        name=name,
        incarnation=incarnation,
        segments_id=incarnation,
        id_seed=secrets.randbits(64),
        created_at=now,
        partitions=partitions,
        first_retained=floor + 1,
        known_from=floor + 1,
        voids=[(1, floor)] if floor else [],
    )


def make_log_directory(directory: Path, meta: Meta) -> None:
    """Durably create an empty log. Raises OSError."""
    for part in (FRAMES, INDEX, HISTORY):
        make_directory(directory / part)
    meta.write(directory)
    sync_directory(directory.parent)


def make_copies(
    directory: Path,
    state: StateStore,
    give_up: Callable[[Path, str], None],
    on_missing: Callable[[str], None] = nobody_asks,
) -> None:
    """Create empty directories for the home's logs that have none, and set aside all other directories.

    `give_up`: see `Homed`. `on_missing` is called with a description before a missing directory is created.
    """
    for entry in known_logs(state).values():
        log = directory / LOGS / entry.directory
        if known_identity(state, log) is None:
            continue  # from a version without a journal
        if log.is_dir() and not (log / FRAMES).is_dir():
            set_aside(log, "it is incomplete")  # its creation was interrupted
        if not log.is_dir():
            on_missing(f"{log} is missing")
            make_log_directory(log, meta_of(state, log))
        elif is_renewed(state, log):  # data that only the copy has belongs to the old one
            give_up(log, "its home has a new incarnation, because a loss was accepted")
            meta_of(state, log).write(log)
    for paths in unknown_directories(directory, state).values():
        for path in paths:
            set_aside(path, "its home no longer has this log")


def is_renewed(state: StateStore, log: Path) -> bool:
    """Whether another server gave the log a new incarnation after its copy was written."""
    identity = known_identity(state, log)
    try:
        meta = read_meta(log)
    except EventLogError:
        return False  # opening it reports the error
    return identity is not None and (
        meta.segments_id == identity.segments_id and meta.incarnation != identity.incarnation
    )


def begin_anew(log: Path, state: StateStore, why: str) -> None:
    """Set aside the copy of a log, and create an empty one."""
    set_aside(log, why)
    make_log_directory(log, meta_of(state, log))


def set_aside(log: Path, why: str) -> None:
    """Move the copy of a log out of the way. It is not removed: its content may exist nowhere else."""
    data = log.parent.parent
    aside = data / f"aside-{log.name}-{wall_clock_ms()}"
    if log.exists():  # it may have had two names
        log.rename(aside)
    sync_directory(data)
    sync_directory(log.parent)
    logger.warning("%s: %s; the copy was moved to %s; remove it if you do not need its contents", log, why, aside)
