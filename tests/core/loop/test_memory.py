"""The budget of memory: who may hold how much, and who is ended for not reading."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.core.errors import TooLarge
from headwater.core.loop import memory
from headwater.core.loop.memory import KEPT, MemoryAccount, Share
from headwater.core.shared_bytes import FREE_BYTES, MIB, STEP_BYTES, NoMemory

BUDGET = 64 * MIB
ORDINARY = BUDGET - BUDGET // KEPT
"""What is there for all but administrators."""


def share_of(account: MemoryAccount, name: str | None = "ada", *, is_administrator: bool = False) -> Share:
    share = Share(account)
    if name is not None:
        share.belong(account.owner(name, is_administrator=is_administrator))
    return share


def test_a_connection_holds_64_kib_beside_the_budget_and_no_more_before_its_login() -> None:
    account = MemoryAccount(BUDGET)
    share = share_of(account, None)
    assert share.take(FREE_BYTES) and account.bytes == 0
    assert not share.take(1) and account.refused == 1
    assert isinstance(share.refusal(8 * MIB, "a message"), TooLarge)
    share.belong(account.owner("ada"))
    assert share.take(1) and account.bytes == STEP_BYTES


def test_one_user_holds_half_of_what_others_leave_over_all_its_connections() -> None:
    account = MemoryAccount(BUDGET)
    shares = [share_of(account) for _ in range(100)]
    taken = sum(share.take(MIB + FREE_BYTES) for share in shares)
    assert taken * MIB == ORDINARY // 2
    other = share_of(account, "eve")
    assert other.take(ORDINARY // 4 + FREE_BYTES - STEP_BYTES)
    assert not other.take(2 * STEP_BYTES)


def test_strangers_have_an_eighth_together() -> None:
    account = MemoryAccount(BUDGET)
    shares = [Share(account) for _ in range(100)]
    for share in shares:
        share.belong(account.strangers)
    assert sum(share.take(MIB + FREE_BYTES) for share in shares) == BUDGET // MIB // memory.STRANGERS


def test_an_administrator_has_room_where_others_have_none() -> None:
    account = MemoryAccount(BUDGET)
    shares = [share_of(account, str(number)) for number in range(1000)]
    while any(share.take(STEP_BYTES) for share in shares):
        pass
    assert not share_of(account, "one more").take(FREE_BYTES + 1)
    assert share_of(account, "root", is_administrator=True).take(MIB)


def test_what_can_never_fit_is_too_large_and_what_does_not_fit_now_is_not() -> None:
    account = MemoryAccount(BUDGET)
    first, second = share_of(account), share_of(account)
    with pytest.raises(TooLarge, match=f"{BUDGET} bytes of memory given, at most {first.largest} are allowed"):
        first.claim(BUDGET, "a body")
    first.claim(first.largest, "a body")
    with pytest.raises(NoMemory, match=r"131072 bytes of memory are needed for a body, but only 0 are free"):
        second.claim(2 * STEP_BYTES, "a body")
    first.give(first.bytes)
    second.claim(second.largest, "a body")


def test_all_comes_back_whatever_order_things_end_in() -> None:
    account = MemoryAccount(BUDGET)
    share = share_of(account)
    share.hold(5 * MIB)
    share.take(3 * MIB)
    share.begin_answer()
    share.close()
    assert account.readers == 0 and account.bytes > 0, "a request that runs on still holds its bytes"
    share.give(3 * MIB)
    share.give(5 * MIB)
    assert account.bytes == 0 and account._owners == {}


def test_a_piece_of_an_answer_is_smaller_the_more_read() -> None:
    account = MemoryAccount(BUDGET)
    shares = [share_of(account, str(number)) for number in range(5000)]
    shares[0].begin_answer()
    assert account.piece_bytes == 256 * 1024
    for share in shares[1:1024]:
        share.begin_answer()
    assert account.piece_bytes == BUDGET // 1024
    for share in shares[1024:]:
        share.begin_answer()
    assert account.piece_bytes == 16 * 1024


class StalledReader:
    """A connection whose peer takes nothing."""

    def __init__(self, account: MemoryAccount, name: str, size: int) -> None:
        self.share = Share(account, self)
        self.share.belong(account.owner(name))
        self.share.hold(size)
        self.size, self.reason = size, ""

    def unsent_bytes(self) -> int:
        return self.size

    def end_stalled(self, reason: str) -> None:
        self.reason = reason
        self.share.give(self.share.bytes)
        self.share.close()


@pytest.fixture
def quick(monkeypatch: Any) -> None:
    monkeypatch.setattr(memory, "STALLED_S", 0.2)
    monkeypatch.setattr(memory, "CHECK_S", 0.02)


def test_who_takes_nothing_while_memory_is_short_is_ended_the_largest_first(quick: None) -> None:
    asyncio.run(five_stall_and_one_moves())


async def five_stall_and_one_moves() -> None:
    account = MemoryAccount(BUDGET)
    told: list[tuple[str, int]] = []
    account.on_ended = lambda owner, size: told.append((owner, size))
    readers = [StalledReader(account, str(number), (number + 1) * 4 * MIB) for number in range(5)]
    for reader in readers:
        reader.share.stalls()
    moving = StalledReader(account, "moving", 30 * MIB)
    moving.share.stalls()
    for _ in range(30):
        moving.size -= 1
        await asyncio.sleep(0.02)
    assert not moving.reason, "it takes a little"
    assert readers[4].reason == "you have read nothing for 0.2 s, and the server is short of memory"
    ended = [reader for reader in readers if reader.reason]
    assert ended == readers[-len(ended) :] and len(ended) == account.ended == len(told) < 5
    assert told[0] == ("4", 20 * MIB)
    assert not account.is_short


def test_nobody_is_ended_while_there_is_room(quick: None) -> None:
    asyncio.run(one_stalls())


async def one_stalls() -> None:
    account = MemoryAccount(BUDGET)
    reader = StalledReader(account, "ada", 20 * MIB)
    reader.share.stalls()
    await asyncio.sleep(0.4)
    assert not reader.reason and account.ended == 0


@pytest.mark.parametrize("budget", [1, 200_000, MIB + 7, BUDGET])
@pytest.mark.parametrize("is_stranger", [False, True])
def test_the_most_that_fits_can_be_taken_and_a_byte_more_never(budget: int, is_stranger: bool) -> None:
    account = MemoryAccount(budget)
    share = share_of(account)
    if is_stranger:
        share.belong(account.strangers)
    assert share.take(share.largest)
    share.give(share.bytes)
    with pytest.raises(TooLarge):
        share.claim(share.largest + 1, "a body")
