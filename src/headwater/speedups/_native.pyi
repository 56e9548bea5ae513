from collections.abc import Iterable, Sequence
from mmap import mmap
from typing import Any

DIGEST: str

def know_event(plain: tuple[Any, ...], /) -> None: ...
def pick(
    content: mmap | bytes | memoryview, offset: int, numbers: Iterable[int], events: list[Any], budget: int, /
) -> int | None: ...
def walk(
    content: mmap | bytes,
    firsts: Sequence[int],
    offsets: Sequence[int],
    verified: bytearray,
    numbers: list[int],
    position: int,
    below: int,
    events: list[Any] | bytearray,
    budget: int,
    each: int,
    /,
) -> tuple[int, int, bool] | None: ...
def look_through(message: bytes, size: int, /) -> tuple[dict[int, tuple[int, int]], list[int]] | None: ...
def transfers(
    buffer: bytes, at: int, id_at: int, tag_bytes: int, head_bytes: int, size_max: int, count_max: int, /
) -> tuple[list[bytes], list[bytes], int] | None: ...
def alike(
    messages: Sequence[bytes],
    at: int,
    head: bytes,
    tail: bytes,
    tail_at: int,
    content_at: int,
    size_bytes: int,
    rest_at: int,
    kept: bytes,
    bytes_max: int,
    data: list[bytes],
    envelopes: list[bytes],
    /,
) -> tuple[int, int] | None: ...
def writer(ended: int, /) -> object: ...
def write_behind(writer: object, fd: int, content: bytes, at: int, /) -> None: ...
