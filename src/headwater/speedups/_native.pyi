from collections.abc import Callable, Iterable, Sequence
from mmap import mmap
from typing import Any

DIGEST: str

def know_event(event: Callable[[tuple[Any, ...]], tuple[Any, ...]], no_attributes: object, data: object, /) -> None: ...
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
    events: list[Any],
    budget: int,
    /,
) -> tuple[int, int, bool]: ...
