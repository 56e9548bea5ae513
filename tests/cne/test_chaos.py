"""Whatever goes wrong, in whatever order: every subscriber gets every event, in the order of the log."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from headwater.storage.memory import MemoryStore

from .builders import NODE_SYNC_STATE
from .world import V2, Call, Subscriber, World

SETTINGS = {"queue_events_max": 3, "suspend_after_ms": 40, "retry_ms_min": 1, "retry_ms_max": 5, "timeout_ms": 300}
STEPS = 60


class Moody(Subscriber):
    """A subscriber in some mood; in a bad one it fails in all the ways there are."""

    def __init__(self, dice: random.Random) -> None:
        self.badness = 0.0
        self._dice = dice
        super().__init__(self._moodily)
        self.taken: list[str] = []

    async def _moodily(self, call: Call) -> int | str | bytes:
        if not call.body:
            return 204
        if self._dice.random() < self.badness:
            if self._dice.random() < 0.3:
                self.taken.append(call.value)  # it has it, and the answer is lost
            return self._dice.choice([500, 503, 429, "reset", b"nonsense\r\n\r\n", 404])
        await asyncio.sleep(self._dice.choice([0, 0, 0.001]))
        self.taken.append(call.value)
        return 204


def is_done(delivery: dict[str, Any], store: MemoryStore) -> bool:
    """Whether everything is delivered that was ever published: the cursor of who is current moves with his events."""
    return delivery["is_current"] and delivery["cursor"] == store.open("cne").head()


@pytest.mark.parametrize("seed", range(8))
def test_nothing_is_lost(run, seed):
    async def scenario() -> None:
        dice, store, published = random.Random(seed), MemoryStore(), ["start"]
        subscribers = [Moody(dice) for _ in range(3)]
        for each in subscribers:
            await each.start()
        world = await World(store, **SETTINGS).__aenter__()
        id = await world.publisher(NODE_SYNC_STATE)
        await world.publish(id, "start")
        ids = [await world.subscribe(each.uri(), NODE_SYNC_STATE) for each in subscribers]
        for _ in range(STEPS):
            match dice.choice(["publish"] * 6 + ["mood", "mood", "wait", "resume", "ping", "restart"]):
                case "publish":
                    for _ in range(dice.choice([1, 1, 5])):
                        published.append(str(len(published)))
                        await world.publish(id, published[-1])
                case "mood":
                    dice.choice(subscribers).badness = dice.choice([0.0, 0.3, 1.0])
                case "wait":
                    await asyncio.sleep(dice.choice([0, 0.01, 0.06]))
                case "resume":
                    await world.ask("POST", f"{V2}/subscriptions/{dice.choice(ids)}/resume")
                case "ping":
                    await world.ask("PUT", f"{V2}/subscriptions/status/{dice.choice(ids)}")
                case "restart":
                    await world.__aexit__()
                    world = await World(store, **SETTINGS).__aenter__()
        for each, subscription in zip(subscribers, ids, strict=True):
            each.badness = 0.0
            await world.ask("POST", f"{V2}/subscriptions/{subscription}/resume")
        for each, subscription in zip(subscribers, ids, strict=True):
            await world.until_delivery(subscription, lambda status: is_done(status, store))
            assert set(each.taken) == set(published)
        await world.__aexit__()
        for each in subscribers:
            await each.stop()

    run(scenario())


@pytest.mark.parametrize("seed", range(8, 14))
def test_without_pings_the_order_is_that_of_the_log(run, seed):
    async def scenario() -> None:
        dice, store = random.Random(seed), MemoryStore()
        subscriber = await Moody(dice).start()
        world = await World(store, **SETTINGS).__aenter__()
        id = await world.publisher(NODE_SYNC_STATE)
        await world.publish(id, "start")
        subscription = await world.subscribe(subscriber.uri(), NODE_SYNC_STATE)
        for number in range(100):
            await world.publish(id, str(number))
            subscriber.badness = dice.choice([0.0, 0.5, 1.0])
            if dice.random() < 0.1:
                await world.ask("POST", f"{V2}/subscriptions/{subscription}/resume")
            if dice.random() < 0.03:
                await world.__aexit__()
                world = await World(store, **SETTINGS).__aenter__()
        subscriber.badness = 0.0
        await world.ask("POST", f"{V2}/subscriptions/{subscription}/resume")
        await world.until_delivery(subscription, lambda status: is_done(status, store))
        await world.__aexit__()
        await subscriber.stop()
        assert list(dict.fromkeys(subscriber.taken)) == ["start", *map(str, range(100))]

    run(scenario())
