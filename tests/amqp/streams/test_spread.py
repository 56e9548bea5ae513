"""Spreading: the same links as by looking at all of them each time, at a cost that grows no faster than they do."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import pytest

from headwater.amqp.streams.spread import Held, Waiting, moved

Links = list[tuple[str, str]]


def _links(dice: random.Random, name: str, count: int, connections: int) -> Links:
    return [(f"{name}{number}", f"c{dice.randrange(connections)}") for number in range(count)]


def _moved_one_by_one(held: Counter[str], movable: Links, waiting: Links) -> list[str]:
    """The rule, word by word."""
    movable, waiting, found = list(movable), list(waiting), []
    while movable and waiting:
        taker = min(waiting, key=lambda pair: held[pair[1]])
        order = dict.fromkeys(connection for _, connection in movable)
        giver = max(order, key=lambda connection: held[connection])
        if held[giver] - held[taker[1]] < 2:
            break
        newest = [pair for pair in movable if pair[1] == giver][-1]
        movable.remove(newest)
        waiting.remove(taker)
        held[giver] -= 1
        held[taker[1]] += 1
        found.append(newest[0])
    return found


@pytest.mark.parametrize("seed", range(200))
def test_the_same_links_are_moved_as_by_the_rule(seed: int) -> None:
    dice = random.Random(seed)
    connections = dice.randint(1, 8)
    movable = _links(dice, "m", dice.randint(0, 30), connections)
    waiting = _links(dice, "w", dice.randint(0, 30), connections)
    held = Held(connection for _, connection in movable)
    expected = _moved_one_by_one(Counter(held), movable, waiting)
    assert list(moved(held, movable, Waiting(held, waiting))) == expected


class _Counting(Held):
    """Counts how often it is looked at."""

    looks = 0

    def __getitem__(self, key: Any) -> int:
        type(self).looks += 1
        return super().__getitem__(key)


@pytest.mark.parametrize("size", [256, 1024, 4096])
def test_the_work_of_a_spread_does_not_grow_with_the_square(size: int) -> None:
    """One connection has all partitions, and as many others come."""
    _Counting.looks = 0
    held = _Counting()
    held.update({"all": size})
    waiting = Waiting(held, [(f"w{number}", f"c{number}") for number in range(size)])
    movable = [(f"m{number}", "all") for number in range(size)]
    assert len(list(moved(held, movable, waiting))) == size - 1
    assert _Counting.looks < 2 * size * math.log2(size)
