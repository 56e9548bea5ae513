"""The checksum of what is joined is that of the whole."""

from __future__ import annotations

import random

import google_crc32c
import pytest

from headwater.storage.frames.crc import joined_crc


@pytest.mark.parametrize("size", [0, 1, 3, 8, 1000, 4097, 3_000_001])
def test_it_is_that_of_both_one_behind_the_other(size: int) -> None:
    chance = random.Random(size)
    first, second = chance.randbytes(chance.randrange(1, 300)), chance.randbytes(size)
    seed = chance.getrandbits(32)
    expected = google_crc32c.extend(google_crc32c.extend(seed, first), second)
    assert joined_crc(google_crc32c.extend(seed, first), google_crc32c.value(second), size) == expected
