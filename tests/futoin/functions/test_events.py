"""Stored events as FutoIn events: large ones one in a turn of the loop, and data of more values than are built."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from headwater.core import Event, LogSettings
from headwater.core.log import Page
from headwater.core.loop.memory import MemoryAccount, Share
from headwater.core.shared_bytes import MIB
from headwater.futoin.functions import events
from headwater.futoin.functions.events import encode_event, group_after, read
from headwater.futoin.messages.coders import CBOR, JSON, MPCK
from headwater.futoin.messages.message import PACKED_VALUES_MAX, Coder
from headwater.futoin.naming import Naming
from headwater.futoin.outlet import Claim, Outlet
from headwater.storage.memory import MemoryStore

NAMING = Naming({}, leaves_out_other=False)


def test_of_many_readers_one_large_event_is_encoded_in_a_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryStore().create("orders", LogSettings())
    log.append([Event("A", b'"%b"' % (b"x" * 900_000))])
    account = MemoryAccount(64 * MIB)
    turns, encoded, went_on = 0, list[int](), list[int]()

    def count() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(count)

    def encode(*given: Any, **named: Any) -> bytes:
        encoded.append(turns)
        return encode_event(*given, **named)

    async def at_once(work: Callable[[], Any]) -> Any:
        return work()

    async def ask(name: str) -> None:
        share = Share(account)
        share.belong(account.owner(name))
        log_read = partial(read, log, NAMING.select(None))
        with Claim(Outlet(share)) as claim:
            await claim.turn()
            group, _ = await group_after(log_read, at_once, 0, JSON, NAMING, claim, 8 * MIB)
            went_on.append(turns)
            assert [json.loads(each)["id"] for each in group.events] == ["1"]
            assert share.bytes == len(group.events[0])

    async def ask_all() -> None:
        count()
        await asyncio.gather(*[ask(f"user {number}") for number in range(5)])

    monkeypatch.setattr(events, "encode_event", encode)
    asyncio.run(ask_all())
    assert len({*encoded, *went_on}) == 10, (encoded, went_on)
    assert account.bytes == account.readers == 0


@pytest.mark.parametrize("coder", [JSON, MPCK, CBOR], ids=lambda coder: type(coder).__name__)
@pytest.mark.parametrize("more", [0, 1])
def test_data_of_too_many_values_is_base64_where_they_would_be_built(coder: Coder, more: int) -> None:
    log = MemoryStore().create("orders", LogSettings())
    values = [1] * (PACKED_VALUES_MAX - 1 + more)  # the array counts, too
    data = json.dumps(values, separators=(",", ":")).encode()
    log.append([Event("A", data)])
    page: Page = log.read_page(NAMING.select(None).query, 0)
    reply = coder.message([("r", encode_event(page.events[0], coder, NAMING, MIB))])
    is_built = coder is not JSON and more
    expected = {"data_base64": base64.b64encode(data).decode()} if is_built else values
    assert coder.tree(reply)["r"]["data"] == expected
