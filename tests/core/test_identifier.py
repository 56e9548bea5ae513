"""UUIDv7 as RFC 9562 lays it out."""

from __future__ import annotations

import time
import uuid

import pytest

from headwater.core.identifier import uuid7s


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_there_are_as_many_as_asked_for_and_no_two_are_the_same(count: int) -> None:
    assert len(set(uuid7s(count))) == count


def test_each_is_a_uuid_of_version_7_and_the_rfcs_variant() -> None:
    for text in uuid7s(500):
        parsed = uuid.UUID(text)
        assert str(parsed) == text
        assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)


def test_the_first_48_bits_are_the_time_in_ms() -> None:
    before = time.time_ns() // 1_000_000
    texts = uuid7s(3)
    after = time.time_ns() // 1_000_000
    for text in texts:
        assert before <= uuid.UUID(text).int >> 80 <= after


def test_later_ones_sort_behind_earlier_ones_to_the_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = []
    for now in (0, 1, 255, 1_700_000_000_000, 2**48 - 1):
        monkeypatch.setattr(time, "time_ns", lambda now=now: now * 1_000_000 + 999_999)
        texts += uuid7s(1)
    assert texts == sorted(texts)


def test_all_bits_but_time_version_and_variant_are_random() -> None:
    texts = [uuid.UUID(text).int for text in uuid7s(2000)]
    ones = zeros = 0
    for number in texts:
        ones |= number
        zeros |= ~number
    random_bits = ((1 << 80) - 1) & ~(0xF << 76) & ~(0b11 << 62)
    assert ones & random_bits == random_bits
    assert zeros & random_bits == random_bits
