"""The witness: the last confirmed change of the state, recorded outside the state's own store.

A store that reads its own log after a crash stops where the log is damaged, and treats the part before that as
complete. Nothing in the store contradicts it. So there is a second file, with two slots that are written in turn:

    0  magic "HWITNESS" | 8  serial, u64 | 16  flags, u32 | 20  CRC32C of the 20 bytes before

The slot with the higher serial counts; if a power cut tears a slot, the other one remains. Slots are written after a
change is durable and are not synced: a kill loses nothing, a power cut may lose the newest slot. So the witness may
record too little, never too much.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from ...core.errors import StorageCorrupted
from ..disk.system import private_opener, write_whole

_SLOT = struct.Struct("<8sQII")
_MAGIC = b"HWITNESS"
SLOT_DISTANCE = 4096
"""The slots are in different sectors and pages, so that no write damages both."""
HAD_USERS = 1
"""Flag: the state has had users, see `core.state.StateStore.had_users`."""


class Testimony(NamedTuple):
    """The content of a slot."""

    serial: int
    had_users: bool


class LastConfirmed:
    """The witness of one state, open for writing. Call it only under the lock of that state."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and StorageCorrupted if it is missing or neither slot can be read."""
        self.path = path
        read_witness(path)
        slots = read_slots(path)
        self._next = 0 if slots[0] is None or (slots[1] is not None and slots[0].serial <= slots[1].serial) else 1
        self._descriptor = private_opener(str(path), os.O_RDWR | os.O_CLOEXEC)

    def tell(self, serial: int, had_users: bool) -> None:
        """Record a durable change by its serial number. Raises OSError."""
        os.pwrite(self._descriptor, _slot(serial, had_users), self._next * SLOT_DISTANCE)
        self._next = 1 - self._next

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
        self._descriptor = -1  # another file may get that number


def make_witness(path: Path, serial: int, had_users: bool) -> None:
    """Durably recreate the witness, with the same content in both slots."""
    slot = _slot(serial, had_users)
    write_whole(path, slot.ljust(SLOT_DISTANCE, b"\0"), slot)


def read_slots(path: Path) -> list[Testimony | None]:
    """The content of both slots; None for an unreadable one. Raises OSError."""
    return slots_in(path.read_bytes())


def slots_in(content: bytes) -> list[Testimony | None]:
    """The content of both slots in the bytes of a witness."""
    return [_read(content[at : at + _SLOT.size]) for at in (0, SLOT_DISTANCE)]


def read_witness(path: Path) -> Testimony:
    """The content of the newer slot. Raises OSError, StorageCorrupted: the witness is missing or unreadable."""
    try:
        told = [slot for slot in read_slots(path) if slot is not None]
    except FileNotFoundError:
        raise StorageCorrupted(str(path), "the file is missing", REMEDY) from None
    if not told:
        raise StorageCorrupted(str(path), "neither of its two slots is readable", REMEDY)
    return max(told)


REMEDY = (
    "restore a backup (headwater restore), or accept the remaining state as complete: "
    "headwater check --accept-state-loss"
)
"""The remedy if the state cannot be trusted."""


def _slot(serial: int, had_users: bool) -> bytes:
    facts = _SLOT.pack(_MAGIC, serial, HAD_USERS if had_users else 0, 0)[:-4]
    return facts + int(google_crc32c.value(facts)).to_bytes(4, "little")


def _read(content: bytes) -> Testimony | None:
    if len(content) != _SLOT.size:
        return None
    magic, serial, flags, crc = _SLOT.unpack(content)
    if magic != _MAGIC or crc != google_crc32c.value(content[:-4]):
        return None
    return Testimony(serial, bool(flags & HAD_USERS))
