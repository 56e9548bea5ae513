"""Workers of groups where they are kept: how many there may be, and when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from headwater.amqp.settings import AmqpSettings
from headwater.amqp.streams.workers import WORKERS_MAX, WORKERS_OF_USER_MAX, GroupWorkers
from headwater.core.errors import ConsumerFenced, InvalidInput, LogNotFound, Overloaded, StorageUnavailable
from headwater.core.workers import Holding, WorkerKey
from headwater.http.problems import problem_of

from ...builders import fill
from ...volatile import VolatileStore
from ..served import Served


@pytest.fixture
def served() -> Iterator[Served]:
    with Served() as served:
        served.log("orders")
        yield served


async def join(workers: GroupWorkers, user: str, names: range, peer: str = "") -> None:
    for name in names:
        await workers.beat(WorkerKey("orders", "g", user, str(name)), lease_ms=600_000, peer=peer)


class TestPlaces:
    def test_one_user_has_a_share_of_them(self, served: Served) -> None:
        async def check() -> None:
            workers = GroupWorkers(served.container.nodes)
            await join(workers, "ann", range(WORKERS_OF_USER_MAX))
            with pytest.raises(Overloaded, match="user 'ann' has 100 workers of log 'orders'") as refused:
                await join(workers, "ann", range(WORKERS_OF_USER_MAX, WORKERS_OF_USER_MAX + 1))
            await join(workers, "bob", range(1))
            await join(workers, "ann", range(1))  # one that is there already
            await workers.leave(WorkerKey("orders", "g", "ann", "7"))
            await join(workers, "ann", range(WORKERS_OF_USER_MAX, WORKERS_OF_USER_MAX + 1))
            problem = problem_of(refused.value)
            assert problem is not None and problem.status == 503 and (b"retry-after", b"5") in problem.headers

        served.run(check)

    def test_where_nobody_logs_in_one_address_has_a_share_of_them(self, served: Served) -> None:
        async def check() -> None:
            workers = GroupWorkers(served.container.nodes)
            await join(workers, "", range(WORKERS_OF_USER_MAX), peer="10.0.0.1")
            with pytest.raises(Overloaded, match=r"^10\.0\.0\.1, which has not logged in, has 100 workers"):
                await join(workers, "", range(WORKERS_OF_USER_MAX, WORKERS_OF_USER_MAX + 1), peer="10.0.0.1")
            await join(workers, "", range(WORKERS_OF_USER_MAX, WORKERS_OF_USER_MAX + 1), peer="10.0.0.2")

        served.run(check)

    def test_there_is_an_end_to_all_of_them_together(self, served: Served) -> None:
        async def check() -> None:
            workers = GroupWorkers(served.container.nodes)
            for peer in range(WORKERS_MAX // WORKERS_OF_USER_MAX):
                first = peer * WORKERS_OF_USER_MAX
                await join(workers, "", range(first, first + WORKERS_OF_USER_MAX), peer=str(peer))
            with pytest.raises(Overloaded, match="log 'orders' has 1000 workers"):
                await join(workers, "", range(WORKERS_MAX, WORKERS_MAX + 1), peer="new")

        served.run(check)

    def test_who_joins_and_leaves_makes_no_groups_without_end(self) -> None:
        async def check(served: Served) -> None:
            workers, refused = GroupWorkers(served.container.nodes), 0
            for number in range(30):
                key = WorkerKey("orders", f"n{number}", "ann", "w")
                try:
                    await workers.beat(key, lease_ms=600_000)
                    await workers.leave(key)
                except InvalidInput as error:
                    assert error.where == "group"
                    refused += 1
            positions = (await served.container.nodes.node_of("orders")).positions
            assert len(positions.groups().keys() | positions.epochs.keys()) == 10 and refused == 20

        with Served(settings=AmqpSettings(termini_max=10)) as small:
            small.log("orders")
            small.run(lambda: check(small))


class TestOneName:
    """Two processes that call themselves the same."""

    KEY = WorkerKey("orders", "g", "", "w")

    async def begin(self, workers: GroupWorkers) -> Holding:
        """One more process, as soon as it holds the log's partition."""
        holding = await workers.beat(self.KEY, lease_ms=600_000)
        while not holding.partitions:
            holding = await workers.beat(self.KEY, lease_ms=600_000, wait_ms=10_000, version=holding.version)
        return holding

    def test_the_second_fences_the_first_which_is_told_so(self, served: Served) -> None:
        async def check() -> None:
            workers = GroupWorkers(served.container.nodes)
            first = await self.begin(workers)
            waiting = asyncio.create_task(
                workers.beat(self.KEY, lease_ms=600_000, wait_ms=25_000, version=first.version)
            )
            await asyncio.sleep(0)
            second = await self.begin(workers)
            for beat in (waiting, workers.beat(self.KEY, lease_ms=600_000, version=first.version)):
                with pytest.raises(ConsumerFenced, match="another worker named 'w' has started in group 'g'"):
                    await beat
            assert second.partitions[0].epoch > first.partitions[0].epoch
            with pytest.raises(ConsumerFenced):
                await workers.acknowledge(self.KEY, 0, first.partitions[0].epoch, 0)
            await workers.acknowledge(self.KEY, 0, second.partitions[0].epoch, 0)
            again = await workers.beat(self.KEY, lease_ms=600_000, version=second.version)
            assert again.partitions == second.partitions

        served.run(check)

    def test_the_first_takes_nothing_from_the_second_when_it_leaves(self, served: Served) -> None:
        async def check() -> None:
            workers = GroupWorkers(served.container.nodes)
            first = await self.begin(workers)
            second = await self.begin(workers)
            await workers.leave(self.KEY, first.version)
            again = await workers.beat(self.KEY, lease_ms=600_000, version=second.version)
            assert again.partitions == second.partitions
            await workers.leave(self.KEY, second.version)
            assert not any((await served.container.nodes.node_of("orders")).groups.owners("g"))

        served.run(check)

    def test_a_worker_of_before_a_restart_goes_on_and_may_repeat_its_first_call(self, served: Served) -> None:
        async def check() -> None:
            before = await self.begin(GroupWorkers(served.container.nodes))
            workers = GroupWorkers(served.container.nodes)  # as after a restart: it knows no worker
            for _ in range(2):
                await workers.beat(self.KEY, lease_ms=600_000, version=before.version)
            with pytest.raises(ConsumerFenced):  # another one of that time, of the same name
                await workers.beat(self.KEY, lease_ms=600_000, version=before.version - 1)

        served.run(check)


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_beat_that_waits_ends_with_its_log(served: Served, is_made_anew: bool) -> None:
    async def check() -> None:
        workers = GroupWorkers(served.container.nodes)
        key = WorkerKey("orders", "g", "", "w")
        node = await served.container.nodes.node_of("orders")
        version = (await workers.beat(key, lease_ms=600_000)).version
        holding = await workers.beat(key, lease_ms=600_000, wait_ms=25_000, version=version)
        waiting = asyncio.create_task(workers.beat(key, lease_ms=600_000, wait_ms=25_000, version=holding.version))
        await asyncio.sleep(0)
        served.store.delete("orders")
        if is_made_anew:
            served.log("orders")
        async with asyncio.timeout(10):
            with pytest.raises(LogNotFound):
                await waiting
        assert not any(node.groups.owners("g"))

    served.run(check)


def test_what_a_worker_acknowledged_is_kept_and_answered_by_one_commit_for_all() -> None:
    store = VolatileStore()
    state = store.volatile

    async def check(served: Served) -> None:
        workers = GroupWorkers(served.container.nodes)
        keys = [WorkerKey("orders", f"g{number}", "", "w") for number in range(5)]
        for key in keys:
            holding = await workers.beat(key, lease_ms=600_000, begins_earliest=True)
            while not holding.partitions:
                holding = await workers.beat(key, lease_ms=600_000, wait_ms=10_000, version=holding.version)
        flushes = state.flushes
        state.hold()
        first, *others = [asyncio.ensure_future(workers.acknowledge(key, 0, 1, 2)) for key in keys]
        await asyncio.to_thread(state.is_flushing.wait, 10)
        assert not first.done()
        state.let_go()
        assert [held.after for held in await asyncio.gather(first, *others)] == [2] * 5
        assert state.kept_values("reader").count(b'{"after": 2}') == 5
        assert state.flushes <= flushes + 2
        state.failure = StorageUnavailable("the home does not answer")
        with pytest.raises(StorageUnavailable):
            await workers.acknowledge(keys[0], 0, 1, 3)
        state.failure = None
        assert (await workers.acknowledge(keys[0], 0, 1, 3)).after == 3
        assert b'{"after": 3}' in state.kept_values("reader")

    with Served(store=store) as served:
        fill(served.log("orders"), 3)
        served.run(lambda: check(served))
