from collections.abc import Sequence
from mmap import mmap

from ...core.event import SequencedEvent

def pick(
    content: mmap | bytes | memoryview,
    offset: int,
    numbers: Sequence[int],
    events: list[SequencedEvent],
    budget: int,
    /,
) -> int | None: ...
