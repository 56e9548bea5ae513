"""A reader of Headwater's segments, written from docs/data-file-format.md alone: standard library only, slow, obvious.

Nothing of headwater is imported here, on purpose: it proves that the document says enough.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

DIRECTORY_AT, SLOTS, SEGMENT_HEADER, FRAME_HEADER_MIN = 80, 28, 64, 192


def read_log(directory: Path) -> Iterator[dict[str, Any]]:
    """All retained events of a log directory, in order. Raises ValueError where something is not as documented."""
    meta = read_meta(directory)
    for path in sorted((directory / "log").glob("*.log")):
        content = path.read_bytes()
        magic, version, _, log, first, seed, crc = struct.unpack("<8sII16sQI16xI", content[:SEGMENT_HEADER])
        is_whole = magic == b"HWSEGMNT" and version == 1 and crc == crc32c(content[:60])
        if not is_whole or first != int(path.stem) or log.hex() != meta["segments_id"]:
            raise ValueError(f"{path}: the header is not as documented")
        at = SEGMENT_HEADER
        while content[at : at + 8].strip(b"\0"):
            (length,) = struct.unpack_from("<Q", content, at + 8)
            for event in read_frame(content[at : at + length], seed):
                if event["sequence_number"] >= meta["first_retained"]:
                    yield event
            at += length


def read_meta(directory: Path) -> dict[str, Any]:
    """META.json, or another small file. Raises ValueError."""
    return read_checked(directory / "META.json", checked_from=3)


def read_checked(path: Path, checked_from: int) -> dict[str, Any]:
    """A small file; that format is the first with a checksum, and the last that is known. Raises ValueError."""
    content = path.read_bytes()
    found: dict[str, Any] = json.loads(content)
    if found["format"] > checked_from:
        raise ValueError(f"{path}: format {found['format']}: use a newer reader")
    checksum = re.search(rb'"crc32c": ?"([0-9a-f]{8})"\s*}\s*$', content)
    if checksum is None and found["format"] == checked_from:
        raise ValueError(f"{path}: the checksum is missing")
    if checksum and int(checksum[1], 16) != crc32c(
        content[: checksum.start(1)] + b"0" * 8 + content[checksum.end(1) :]
    ):
        raise ValueError(f"{path}: the checksum does not match")
    return found


def read_frame(frame: bytes, seed: int) -> Iterator[dict[str, Any]]:
    """The events of one frame."""
    magic, crc, length, version, required, _, _, count, _, first = struct.unpack_from("<4sIQHHHHIIQ", frame)
    (recorded_at,) = struct.unpack_from("<q", frame, 72)
    if magic != b"HWF1" or length != len(frame) or length < FRAME_HEADER_MIN or length % 8:
        raise ValueError("there is no frame")
    if crc != crc32c(frame[8:], seed):
        raise ValueError("the frame is not whole")
    if version != 1 or required:
        raise ValueError(f"version {version}, required features {required:#x}: use a newer reader")
    slots = struct.unpack_from(f"<{SLOTS}I", frame, DIRECTORY_AT)

    def numbers(slot: int, kind: str, default: int) -> list[int]:
        return list(struct.unpack_from(f"<{count}{kind}", frame, slots[slot])) if slots[slot] else [default] * count

    def values(slot: int, size: int) -> list[bytes]:
        if not slots[slot]:
            return [b""] * size
        ends = struct.unpack_from(f"<{size + 1}i", frame, slots[slot])
        return [frame[slots[slot + 1] + a : slots[slot + 1] + b] for a, b in pairwise(ends)]

    def lists(slot: int) -> list[range]:
        if not slots[slot]:
            return [range(0)] * count
        ends = struct.unpack_from(f"<{count + 1}i", frame, slots[slot])
        return [range(a, b) for a, b in pairwise(ends)]

    def texts(slot: int, size: int = count) -> list[str]:
        return [value.decode() for value in values(slot, size)]

    tag_lists, attribute_lists = lists(9), lists(14)
    tags = texts(10, tag_lists[-1].stop)
    names, contents = texts(15, attribute_lists[-1].stop), texts(17, attribute_lists[-1].stop)
    columns = zip(
        numbers(0, "q", recorded_at), numbers(1, "H", 0), numbers(2, "B", 0), texts(3), texts(5), texts(7), tag_lists,
        texts(12), attribute_lists, values(19, count), values(21, count), strict=True,
    )  # fmt: skip
    for number, (time, partition, encoding, id, source, type, tagged, key, attributed, envelope, data) in enumerate(
        columns, first
    ):
        yield {
            "sequence_number": number, "recorded_at": time, "partition": partition, "type": type, "data": data,
            "tags": tuple(tags[i] for i in tagged), "id": id, "source": source, "group_key": key,
            "attributes": {names[i]: contents[i] for i in attributed}, "envelope": envelope, "encoding": encoding,
        }  # fmt: skip


def crc32c(content: bytes, seed: int = 0) -> int:
    """CRC32C, bit by bit prepared, byte by byte done; continued from that of something before it, given a seed."""
    crc = seed ^ 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _shifted(value: int) -> int:
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value


_TABLE = [_shifted(byte) for byte in range(256)]
