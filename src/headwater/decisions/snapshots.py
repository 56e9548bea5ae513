"""Snapshots: states of long boundaries, so that a decision reads only later events. They are optional and verified.

A snapshot has the number and the id of the last event that it contains. The read begins at that event: if that event is
not found, the snapshot belongs to another log or to trimmed events, and everything is read as if there were no
snapshot. A checksum reveals damage; different code or a different query has a different key.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from ..core.event import SequencedEvent
from ..formats.decoders import msgpack_decoder
from ..formats.files.own_directory import check_own
from .events import EventType

EVERY = 1000
_DIGEST_BYTES = 16
_OURS = re.compile(r"[0-9a-f]{64}(\.[0-9a-f]{16})?")
"""The names of snapshots in a directory, and of unfinished snapshots."""
_logger = logging.getLogger(__name__)


class SnapshotStore(Protocol):
    """A store of snapshots. Its errors are logged, and cost only time."""

    def load(self, key: str) -> bytes | None:
        """The snapshot of that key (64 hexadecimal digits), if there is one."""

    def save(self, key: str, snapshot: bytes) -> None:
        """Store it, replacing the previous one."""


class MemorySnapshots(SnapshotStore):
    """Snapshots in this process, as long as it runs. Thread-safe."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        """Snapshots by key. It grows by one for each boundary that is long enough; clear it if there are many."""

    def load(self, key: str) -> bytes | None:
        return self.kept.get(key)

    def save(self, key: str, snapshot: bytes) -> None:
        self.kept[key] = snapshot


class DirectorySnapshots(SnapshotStore):
    """Stores each snapshot in a file, in a directory created on first use. Safe for threads and processes."""

    def __init__(self, directory: Path | str) -> None:
        """Raises InvalidInput for a directory with other files."""
        self.directory = Path(directory)
        check_own(self.directory, _OURS.fullmatch)

    def load(self, key: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return (self.directory / key).read_bytes()
        return None

    def save(self, key: str, snapshot: bytes) -> None:
        """See SnapshotStore. A reader sees either the old snapshot or the new one."""
        self.directory.mkdir(parents=True, exist_ok=True)
        new = self.directory / f"{key}.{os.urandom(8).hex()}"
        try:
            new.write_bytes(snapshot)
            new.replace(self.directory / key)
        except BaseException:
            new.unlink(missing_ok=True)
            raise


class Keeping(NamedTuple):
    """How the snapshots of a projection are kept."""

    store: SnapshotStore
    state: Any
    """The type of the state, which msgspec can encode and decode."""
    version: str
    every: int

    def key(self, log: str, tags: Iterable[str], types: Iterable[EventType[Any]], *, skips: bool) -> str:
        """Its key: the log's name, the query, the versions of classes, and the type and version of the state.

        `skips`: the state may lack events that cannot be read.
        """
        versions = sorted((each.names, each.version) for each in types)
        identity = [1, log, sorted(tags), versions, str(self.state), self.version, *(["skips"] if skips else [])]
        return hashlib.sha256(msgspec.msgpack.encode(identity)).hexdigest()


class _Kept(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    key: str
    number: int
    id: str
    state: bytes


class Snapshot(NamedTuple):
    """An intact snapshot."""

    number: int
    """The id of the last event that it contains."""
    id: str
    state: Any


def packed(key: str, last: SequencedEvent, state: object) -> bytes:
    """The bytes of a snapshot. Raises the errors of msgspec for a state that it cannot encode."""
    kept = _Kept(key, last.sequence_number, last.id, msgspec.msgpack.encode(state))
    body = msgspec.msgpack.encode(kept)
    return _digest(body) + body


def unpacked(keeping: Keeping, key: str, found: bytes | None) -> Snapshot | None:
    """The snapshot in these bytes. None if there is none, or if it is damaged or has another key; both are logged."""
    if found is None:
        return None
    digest, body = found[:_DIGEST_BYTES], found[_DIGEST_BYTES:]
    try:
        if digest != _digest(body):
            raise ValueError("its checksum is wrong")
        kept = msgpack_decoder(_Kept).decode(body)
        if kept.key != key:
            raise ValueError("it belongs to another key")
        return Snapshot(kept.number, kept.id, msgpack_decoder(keeping.state).decode(kept.state))
    except (ValueError, msgspec.MsgspecError) as error:
        report("is damaged and was not used", key, error)
        return None


def report(what: str, key: str, error: Exception) -> None:
    """Log a snapshot's error, which is harmless; `what` continues the words "a snapshot"."""
    _logger.warning("a snapshot %s: %s: %s", what, key, error)


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()


class Resuming:
    """The events of a projection that resumes from a snapshot, starting with the snapshot's own last event."""

    def __init__(self, snapshot: Snapshot | None) -> None:
        self._expected = snapshot
        self.last: SequencedEvent | None = None
        """The last event in the state, if there were any after the snapshot."""
        self.count = 0
        """The number of events after the snapshot."""
        self._is_other = False

    @property
    def is_proved(self) -> bool:
        """Whether the snapshot's last event was found, so that it may be used; valid at the end of the read."""
        return self._expected is None and not self._is_other

    def new(self, events: Iterable[SequencedEvent], upto: int) -> Iterator[SequencedEvent]:
        """The events after the snapshot, up to that number; none if it is of another log."""
        for each in events:
            if self._is_other or each.sequence_number > upto:
                continue
            if (expected := self._expected) is not None:
                self._is_other = (each.sequence_number, each.id) != (expected.number, expected.id)
                self._expected = None
                continue
            self.last = each
            self.count += 1
            yield each
