"""What follows the log can be stopped at any moment, and writes down nothing that it did not read."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from headwater.cne.feed import Feed
from headwater.cne.server import Application
from headwater.cne.settings import Settings
from headwater.core import Event, OpenGuard
from headwater.core.errors import StorageUnavailable
from headwater.storage.memory import MemoryStore

WITHIN_S = 30


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.create("cne").append([Event("t", b"{}", source="/s")])
    return store


def test_a_stop_while_the_feed_is_restored_ends_it_and_leaves_its_positions(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_restoring, may_go_on, saved = threading.Event(), threading.Event(), []

    def restore(feed: Feed) -> dict[str, Any]:
        is_restoring.set()
        assert may_go_on.wait(WITHIN_S)
        return {}

    async def save(feed: Feed) -> None:
        saved.append(feed)

    async def scenario() -> None:
        app = Application(store, OpenGuard(), Settings())
        await app.start()
        assert await asyncio.to_thread(is_restoring.wait, WITHIN_S)
        try:
            async with asyncio.timeout(WITHIN_S):
                await app.close()
        finally:
            may_go_on.set()

    monkeypatch.setattr(Feed, "restore", restore)
    monkeypatch.setattr(Feed, "save", save)
    asyncio.run(scenario())
    assert saved == []


def test_a_state_that_cannot_be_written_does_not_keep_it_from_ending(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def save(feed: Feed) -> None:
        raise StorageUnavailable("the disk is gone")

    async def scenario() -> None:
        app = Application(store, OpenGuard(), Settings())
        await app.start()
        feed = await app.service._supervisor.feed()
        await feed.caught_up()
        async with asyncio.timeout(WITHIN_S):
            await app.close()
        assert app.service._supervisor.present is None

    monkeypatch.setattr(Feed, "save", save)
    asyncio.run(scenario())
