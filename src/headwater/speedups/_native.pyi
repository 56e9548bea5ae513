from collections.abc import Callable, Sequence
from mmap import mmap
from typing import Any

DIGEST: str

def know_event(event: Callable[[tuple[Any, ...]], tuple[Any, ...]], no_attributes: object, data: object, /) -> None: ...
def pick(
    content: mmap | bytes | memoryview,
    offset: int,
    numbers: Sequence[int],
    events: list[Any],
    budget: int,
    /,
) -> int | None: ...
def may_stand(text: bytes, depth: int, /) -> bool | None: ...
