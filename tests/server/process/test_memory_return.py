"""What peers held goes back to the system when they are gone."""

from __future__ import annotations

import asyncio

import pytest

from headwater.server.process import memory_return
from headwater.server.process.memory_return import TRIMMED_BYTES, MemoryReturn, malloc_trim


def test_it_is_due_when_peers_hold_much_less_than_before() -> None:
    charged = [0, TRIMMED_BYTES * 3, TRIMMED_BYTES * 2 + 1, TRIMMED_BYTES * 2, TRIMMED_BYTES, 1, TRIMMED_BYTES // 2, 0]
    returning = MemoryReturn(lambda: charged.pop(0), lambda: None)
    assert [returning.is_due() for _ in range(8)] == [False, False, False, True, True, False, False, True]


def test_memory_is_given_back_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_return, "LOOK_S", 0.001)
    charged, given = [0, TRIMMED_BYTES], asyncio.Event()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()

        def trim() -> None:
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            loop.call_soon_threadsafe(given.set)

        running = asyncio.create_task(MemoryReturn(lambda: charged.pop() if charged else 0, trim).run())
        await given.wait()
        running.cancel()

    asyncio.run(scenario())


def test_pages_between_what_stays_go_back() -> None:
    trim = malloc_trim()
    if trim is None:
        pytest.skip("not glibc")
    pieces = [bytearray(50_000) for _ in range(2000)]
    staying = pieces[::100]
    del pieces
    before = _anonymous()
    trim()
    assert before - _anonymous() > 50 * 2**20 or before < 60 * 2**20
    assert len(staying) == 20


def _anonymous() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))
