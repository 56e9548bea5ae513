"""The identity of a log, in two copies: its META.json, and the state's journal, which is written first.

The identity (the incarnation, the seeds of checksums, the gaps) would be lost with one small file. So the state stores
it too, under the name of the log's directory. A damaged META.json is rebuilt from it, and a META.json that contradicts
it is not trusted. Facts about the directory itself (how it was closed, its epoch) are only in META.json. For the trim
point, see `trim_point`.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec

from ...core.errors import StorageCorrupted
from ...core.state import StateStore
from ...formats.decoders import json_decoder
from ...formats.newer import WrittenByNewer
from ..segments.meta import META_NAME, Meta, read_meta
from .trim_point import trimmed_in

logger = logging.getLogger("headwater.storage")

IDENTITY_KIND = "log-identity"
_FIXED = ("name", "incarnation", "segments_id", "id_seed", "created_at", "partitions")
_GROWING = ("voids", "lost", "distrusted")
_REMEDY = (
    "put back the state that belongs to this log, or restore a backup (headwater restore), or accept what META.json "
    "says (headwater check --accept-loss {name})"
)


class LogIdentity(msgspec.Struct, frozen=True):
    """A log's identity in the journal: the fields of `Meta` with these names."""

    name: str
    incarnation: str
    segments_id: str
    id_seed: int
    created_at: int
    partitions: int
    voids: list[tuple[int, int]]
    lost: list[tuple[int, int]]
    distrusted: list[tuple[int, int, int]]
    has_marks: bool


def record_identity(state: StateStore, directory: Path, meta: Meta) -> None:
    """Durably record the identity of the log in that directory. Call it before META.json is written."""
    identity = LogIdentity(**{name: getattr(meta, name) for name in LogIdentity.__struct_fields__})
    state.put(IDENTITY_KIND, directory.name, msgspec.json.encode(identity))


def forget_identity(state: StateStore, directory: Path) -> None:
    """Remove the identity of a log that is gone."""
    state.delete(IDENTITY_KIND, directory.name)


def known_identity(state: StateStore, directory: Path) -> LogIdentity | None:
    """The state's identity of the log in that directory; None if no version with a journal has opened it."""
    entry = state.get(IDENTITY_KIND, directory.name)
    if entry is None:
        return None
    try:
        return json_decoder(LogIdentity).decode(entry.value)
    except msgspec.MsgspecError as error:
        raise WrittenByNewer(f"the identity of {directory.name} in the state", str(error)) from None


def identified(state: StateStore, directory: Path) -> tuple[Meta, str | None]:
    """The META of a log directory, agreed by both copies, and a message about it. Writes nothing.

    If META.json is damaged, or was not written after the state, the journal is authoritative. Raises StorageCorrupted
    if they disagree, or there is no copy; StorageUnavailable (a newer format).
    """
    identity = known_identity(state, directory)
    try:
        meta = read_meta(directory)
    except StorageCorrupted as error:
        if identity is None:
            raise
        return _made_anew(state, identity), f"{error.problem}: {META_NAME} is rebuilt from the journal"
    if identity is None:
        return meta, None
    for name in _FIXED:
        said, known = getattr(meta, name), getattr(identity, name)
        if said != known:
            raise _disagree(directory, meta, f"{name} is {said!r} in {META_NAME}, but {known!r} in the state")
    changes: dict[str, Any] = {}
    for name in _GROWING:
        said, known = getattr(meta, name), getattr(identity, name)
        if said != known[: len(said)]:
            raise _disagree(directory, meta, f"{name} differs between {META_NAME} and the state")
        changes[name] = known
    if meta.has_marks and not identity.has_marks:
        raise _disagree(directory, meta, f"has_marks is true in {META_NAME}, but false in the state")
    return meta.changed(**changes, has_marks=identity.has_marks), None


def accept_identity(state: StateStore, directory: Path) -> Meta:
    """The META of `identified`; if META.json and the state disagree, META.json, which the state then adopts.

    Raises StorageCorrupted, StorageUnavailable.
    """
    try:
        meta, told = identified(state, directory)
    except StorageCorrupted:
        meta, told = read_meta(directory), None
    record_identity(state, directory, meta)
    if told is not None:
        meta.write(directory)
    return meta


def meta_of(state: StateStore, directory: Path) -> Meta:
    """The META of a log directory from the state alone. Raises StorageCorrupted if it has none."""
    identity = known_identity(state, directory)
    if identity is None:
        raise StorageCorrupted(str(directory), "it is unknown to the state", "use a newer headwater")
    return _made_anew(state, identity)


def _made_anew(state: StateStore, identity: LogIdentity) -> Meta:
    """META rebuilt from an identity, as after a kill. The end of the log is found in its frames."""
    meta = Meta(**{name: getattr(identity, name) for name in LogIdentity.__struct_fields__})
    said = trimmed_in(state, meta)
    return meta.changed(first_retained=said.first_retained, known_from=said.known_from)


def _disagree(directory: Path, meta: Meta, problem: str) -> StorageCorrupted:
    remedy = _REMEDY.format(name=meta.name)
    return StorageCorrupted(str(directory), f"{problem}: one of them was changed", remedy)
