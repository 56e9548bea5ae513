"""`python -m tests.speedups.fuzz SECONDS [SEED]`: damaged frames and messages for the extension and its twins.

They must agree. Bytes of frames, messages and transfers, made at random, are changed. What a function answers its twin
answers too; it may leave anything to the twin. It reads no byte outside of its arguments: `sanitized` shows that.
"""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from headwater.core import Event, SequencedEvent
from headwater.formats.packed import encode
from headwater.speedups import _native as native
from headwater.storage.frames.layout import HEADER_BYTES
from headwater.storage.frames.random_access import pick_any

from ..storage.builders import content, encoded
from .messages import fuzz as fuzz_messages
from .runs import fuzz_alike, fuzz_transfers

FIRST, NO_LIMIT = 41, 1 << 62
TEXTS = ("", "a", "größe", "order:17", "x" * 40, "\N{GRINNING FACE}")
BYTES = (0, 1, 2, 4, 0x7F, 0x80, 0xFF)


class Disagreement(AssertionError):
    """The extension answered something else than its twin."""


def check(times: Callable[[], bool], seed: str) -> int:
    """Try as long as `times` answers true; how many were tried. Raises Disagreement, which names the case."""
    tried = 0
    while times():
        tried += 1
        try:
            frames(Random(f"{seed} {tried}"))
            fuzz_messages(native.look_through, f"{seed} {tried}", 1)
            fuzz_transfers(native.transfers, f"{seed} {tried}", 1)
            fuzz_alike(native.alike, f"{seed} {tried}", 1)
        except AssertionError as error:
            raise Disagreement(f"case {tried} of seed {seed}: {error}") from None
    return tried


def frames(random: Random) -> None:
    """`pick` of one frame, `walk` over several."""
    whole, places, numbers = bytearray(8), [], []
    first = FIRST
    for _ in range(random.randint(1, 5)):
        size = random.choice((1, 1, 1, 2, 5))
        places.append((first, len(whole)))
        whole += content(encoded([_event(random, first + each) for each in range(size)], first))
        numbers += range(first, first + size)
        first += size + (random.random() < 0.1)
    damaged = _damaged(random, bytes(whole), [offset + at for _, offset in places for at in range(HEADER_BYTES)])
    wanted = sorted(random.sample(numbers, random.randint(1, len(numbers))), reverse=random.random() < 0.3)
    budget = random.choice((1, 9, 50, NO_LIMIT))
    _walked(damaged, places, first, wanted, budget)
    its_first, offset = random.choice(places)
    chosen = [number + random.choice((0, 0, 0, 1, -1)) for number in wanted]
    events: list[SequencedEvent] = []
    left = native.pick(damaged, offset, chosen, events, budget)
    if left is None:
        _agree([], events, "pick")
    elif min(chosen) >= its_first:
        _agree(_outcome(pick_any, damaged, offset, chosen, budget), (left, events), "pick")


def _walked(content: bytes, places: Sequence[tuple[int, int]], below: int, wanted: list[int], budget: int) -> None:
    firsts, offsets = (array("Q", column) for column in zip(*places, strict=True))
    events: list[SequencedEvent] = []
    verified = bytearray([1] * len(places))
    position, left, is_gated = native.walk(content, firsts, offsets, verified, wanted, 0, below, events, budget, 0)
    expected: list[SequencedEvent] = []
    given, gated = budget, True
    for number in wanted[:position]:
        offset = max(offset for first, offset in places if first <= number)
        budget = pick_any(content, offset, (number,), expected, budget)
        gated &= bool(content[offset + 20] & 2)
    _agree((expected, budget, gated), (events, left, is_gated), "walk")
    rows = bytearray()
    position, left, _ = native.walk(content, firsts, offsets, verified, wanted, 0, below, rows, given, 0)
    taken = sum(len(each.data) for each in expected[:position])
    _agree((b"".join(map(encode, expected[:position])), given - taken), (rows, left), "walk, packing,")


def _event(random: Random, number: int) -> Event:
    rare: dict[str, Any] = {"source": "shop"} if random.random() < 0.1 else {}
    tags = tuple(random.sample([text for text in TEXTS if text], random.randint(0, 4)))
    return Event(random.choice(TEXTS[1:]), random.choice(TEXTS).encode(), tags, id=f"{number}", **rare)


def _damaged(random: Random, whole: bytes, places: Sequence[int]) -> bytes:
    content = bytearray(whole)
    for _ in range(random.choice((0, 0, 1, 1, 2, 4)) if places else 0):
        content[random.choice(places)] = random.choice(BYTES)
    return bytes(content[: random.randint(0, len(content))] if random.random() < 0.1 else content)


def _outcome(way: Any, *arguments: Any) -> object:
    events: list[SequencedEvent] = []
    *others, budget = arguments
    return way(*others, events, budget), events


def _agree(expected: object, found: object, name: str) -> None:
    if expected != found:
        raise Disagreement(f"{name} answers {found}, its twin {expected}")


def main() -> None:
    """See the module."""
    seconds, seed = float(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else str(time.time_ns())
    end = time.monotonic() + seconds
    print(f"seed {seed}, {native.__file__}", flush=True)
    print(f"{check(lambda: time.monotonic() < end, seed):,} cases, no disagreement")


if __name__ == "__main__":
    main()
