"""UUIDv7 as RFC 9562 lays it out."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.core import identifier
from headwater.core.identifier import uuid7s


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_there_are_as_many_as_asked_for_and_no_two_are_the_same(count: int) -> None:
    assert len(set(uuid7s(count))) == count


def test_each_is_a_uuid_of_version_7_and_the_rfcs_variant() -> None:
    for text in [*uuid7s(500), *(uuid7s(1)[0] for _ in range(600))]:
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


def test_single_ones_are_distinct_in_every_thread_and_after_a_fork() -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = [id for ids in pool.map(lambda _: [uuid7s(1)[0] for _ in range(2000)], range(8)) for id in ids]
    assert len({id[15:] for id in ids}) == len(ids)
    uuid7s(1)
    assert identifier._spare
    script = (
        "import os; from headwater.core import identifier as i; i.uuid7s(1); child = os.fork()\n"
        "if child: os.waitpid(child, 0)\n"
        "print(i.uuid7s(1)[0][15:])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    child, parent = done.stdout.split()
    assert child != parent
