"""Workers that share a log: those that come, go, die, are slow, and come back late; and AMQP receivers beside them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.amqp.asking import EARLIEST, bound, numbers
from tests.server.running import RunningServer, environment
from tests.waiting import eventually

from headwater.amqp.client import Client
from headwater.client import Batch, RemoteLog, Server, Work, aio, connect
from headwater.client.aio.primitives import UNDER_WAY_MAX
from headwater.client.protocol.share import Share
from headwater.client.protocol.wire import BeatBody
from headwater.client.sync.reading import RemoteReading
from headwater.core import Event, LogSettings, Query, errors
from headwater.core.query import ALL

PARTITIONS = 4
_names = count(1)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URLs of HTTP and AMQP of a server."""
    with RunningServer("--storage", "memory", cwd=tmp_path_factory.mktemp("served")) as server:
        yield server.url, server.further_url("amqp")


@pytest.fixture
def server(served: tuple[str, str]) -> Iterator[Server]:
    with connect(served[0]) as server:
        yield server


@pytest.fixture
def log(server: Server) -> RemoteLog:
    return server.create(f"orders{next(_names)}", LogSettings(partitions=PARTITIONS))


Begin = Callable[..., Work]


@pytest.fixture
def begin(log: RemoteLog) -> Iterator[Begin]:
    """`begin(**options)` is a worker of the group `billing`."""
    with ExitStack() as ending:

        def begin(**options: Any) -> Work:
            return ending.enter_context(log.work("billing", **{"start": "earliest", **options}))

        yield begin


def put(log: RemoteLog, count: int) -> list[int]:
    """So many events in each partition; the payload is their number."""
    numbers = []
    for number in range(count):
        for partition in range(PARTITIONS):
            numbers.append(log.append([Event("T", b"%d" % number)], partition=partition).last)
    return sorted(numbers)


def take(work: Work, count: int) -> list[int]:
    """The numbers of so many events, each batch acknowledged."""
    taken: list[int] = []
    for batch in work:
        taken += [event.sequence_number for event in batch]
        if len(taken) >= count:
            work.acknowledge(batch)
            break
    return taken


def ask(url: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as refused:
        with closing(refused):
            return refused.code, json.loads(refused.read())


def joined(url: str, path: str, body: dict[str, Any]) -> Any:
    """What a new worker holds, as soon as it holds something."""
    _, held = ask(url, "PUT", path, body)
    while not held["partitions"]:
        _, held = ask(url, "PUT", path, {**body, "version": held["version"], "wait_ms": 25_000})
    return held


class TestOne:
    def test_has_all_partitions_and_every_event_in_the_order_of_its_partition(
        self, log: RemoteLog, begin: Begin
    ) -> None:
        put(log, 300)
        work = begin()
        by_partition: dict[int, list[int]] = {}
        for batch in work:
            by_partition.setdefault(batch.partition, []).extend(int(event.data) for event in batch)
            if sum(map(len, by_partition.values())) == 300 * PARTITIONS:
                break
        assert by_partition == {partition: list(range(300)) for partition in range(PARTITIONS)}
        assert work.partitions == dict.fromkeys(range(PARTITIONS), 1)

    def test_goes_on_where_its_group_was(self, log: RemoteLog, begin: Begin) -> None:
        put(log, 3)
        first = begin()
        assert len(take(first, 12)) == 12
        first.close()
        new = put(log, 1)
        assert sorted(take(begin(), 4)) == new

    def test_gets_a_batch_again_that_it_did_not_finish(self, log: RemoteLog, begin: Begin) -> None:
        log.append([Event("T")] * 3, partition=2)
        with pytest.raises(ZeroDivisionError):
            for batch in begin():
                assert 1 / 0, batch
        with log.work("other", start="earliest") as other:
            assert take(other, 3) == [1, 2, 3]
        assert "billing" in [name.partition("/")[2] for name in groups_of(log)]

    def test_gets_batches_of_the_size_that_it_asks_for(self, log: RemoteLog, begin: Begin) -> None:
        expected, sizes, numbers = put(log, 5), list[int](), list[int]()
        for batch in begin(batch_events=2):
            sizes.append(len(batch.events))
            numbers += [event.sequence_number for event in batch]
            if len(numbers) == len(expected):
                break
        assert sorted(numbers) == expected and sorted(sizes) == [1] * PARTITIONS + [2] * 2 * PARTITIONS
        for wrong in (0, 10_001):
            with pytest.raises(errors.InvalidInput, match=f"batch_events: expected 1 to 10000, got {wrong}"):
                log.work("other", batch_events=wrong)

    def test_gets_again_only_what_it_did_not_acknowledge_inside_of_a_batch(self, log: RemoteLog, begin: Begin) -> None:
        log.append([Event("T")] * 4, partition=1)
        with pytest.raises(ZeroDivisionError), begin() as work:
            for batch in work:
                assert work.acknowledge(batch, upto=2) and work.acknowledge(batch, upto=1)
                with pytest.raises(errors.InvalidInput, match="upto: expected a number of this batch, 1 to 4, got 5"):
                    work.acknowledge(batch, upto=5)
                assert 1 / 0
        assert take(begin(), 2) == [3, 4]

    def test_acknowledges_inside_of_a_batch_on_an_event_loop_too(
        self, served: tuple[str, str], log: RemoteLog, begin: Begin
    ) -> None:
        log.append([Event("T")] * 4, partition=1)

        async def take_two() -> None:
            async with (
                asyncio.timeout(60),
                aio.connect(served[0]) as server,
                server.log(log.name).work("billing", start="earliest", batch_events=3) as work,
            ):
                async for batch in work:
                    assert len(batch.events) == 3 and await work.acknowledge(batch, upto=2)
                    break

        asyncio.run(take_two())
        assert take(begin(), 2) == [3, 4]

    def test_sees_what_matches_and_passes_over_the_rest(self, log: RemoteLog, begin: Begin) -> None:
        for type in ("A", "B", "A", "B"):
            log.append([Event(type)], partition=0)
        work = begin(query=Query.where(types=["B"]))
        assert take(work, 2) == [2, 4]

    def test_begins_at_the_end_where_its_log_says_so(self, log: RemoteLog) -> None:
        put(log, 2)
        with log.work("late") as work:
            eventually(lambda: len(work.partitions) == PARTITIONS)
            new = put(log, 1)
            assert sorted(take(work, 4)) == new

    def test_ends_where_its_log_does(self, server: Server, log: RemoteLog, begin: Begin) -> None:
        work = begin()
        eventually(lambda: len(work.partitions) == PARTITIONS)
        server.delete(log.name)
        assert list(work) == []

    def test_says_so_where_another_log_has_the_name(self, server: Server, log: RemoteLog) -> None:
        share = Share(log._routes, "g", "w", ALL, 10, "earliest", 100)
        put(log, 1)
        share.hold(log._transport.call(share.beat()))
        share.hold(log._transport.call(share.beat()))
        found = share.next_read()
        assert found is not None
        share.batch(found[0], RemoteReading(log._transport, found[1]).begin().rest(), 4)
        server.delete(log.name)
        put(server.create(log.name, LogSettings(partitions=PARTITIONS)), 1)
        found = share.next_read() or share.next_read()
        assert found is not None
        with pytest.raises(errors.PositionOfOtherIncarnation):
            RemoteReading(log._transport, found[1]).begin()

    def test_ends_in_another_thread(self, begin: Begin) -> None:
        work = begin()
        eventually(lambda: len(work.partitions) == PARTITIONS)
        thread = threading.Thread(target=lambda: list(work))
        thread.start()
        work.close()
        thread.join()


class TestSeveral:
    def test_share_the_partitions_evenly_and_take_over_from_who_leaves(self, log: RemoteLog, begin: Begin) -> None:
        first = begin()
        eventually(lambda: len(first.partitions) == PARTITIONS)
        done: dict[str, list[int]] = {}

        def work_on(work: Work) -> None:
            for batch in work:
                done.setdefault(work.worker, []).extend(event.sequence_number for event in batch)

        threads = [threading.Thread(target=work_on, args=(first,))]
        threads[0].start()
        second = begin()
        threads.append(threading.Thread(target=work_on, args=(second,)))
        threads[1].start()
        eventually(lambda: (len(first.partitions), len(second.partitions)) == (2, 2))
        assert not set(first.partitions) & set(second.partitions)
        expected = put(log, 5)
        eventually(lambda: sum(map(len, done.values())) >= 20)
        assert sorted(number for numbers in done.values() for number in numbers) == expected
        second.close()
        eventually(lambda: len(first.partitions) == PARTITIONS)
        first.close()
        for thread in threads:
            thread.join()

    def test_epochs_rise_with_each_owner(self, begin: Begin) -> None:
        before = dict.fromkeys(range(PARTITIONS), 0)
        for _ in range(3):
            work = begin()
            eventually(lambda: len(work.partitions) == PARTITIONS)  # noqa: B023
            epochs = work.partitions
            assert all(epochs[partition] > before[partition] for partition in before)
            before = epochs  # a beat that was under way when it left may have joined, and left, once more
            work.close()

    def test_what_a_killed_process_had_is_anothers_and_nothing_is_lost(
        self, served: tuple[str, str], tmp_path: Path, server: Server
    ) -> None:
        log = server.create("orders", LogSettings(partitions=PARTITIONS))
        files = [tmp_path / "first", tmp_path / "second"]
        program = [sys.executable, "-m", "tests.client.a_worker", served[0], "killed"]
        processes = [subprocess.Popen([*program, str(file)], env=environment()) for file in files]
        try:
            expected = set[int]()

            def both_work() -> bool:
                expected.update(put(log, 1))
                return all(file.exists() and file.read_text() for file in files)

            eventually(both_work)
            processes[0].kill()
            expected |= set(put(log, 50))

            def all_done() -> bool:
                return expected <= {int(line) for file in files for line in file.read_text().split()}

            eventually(all_done)
        finally:
            for process in processes:
                process.kill()
                process.wait()


class TestFencing:
    def test_who_comes_back_late_is_told(self, served: tuple[str, str], log: RemoteLog) -> None:
        path = f"/logs/{log.name}/groups/g/workers"
        put(log, 1)
        held = joined(served[0], f"{path}/late", {"lease_ms": 500, "start": "earliest"})
        mine = held["partitions"][0]
        with log.work("g", worker="next", start="earliest") as work:
            eventually(lambda: work.partitions.get(mine["partition"], 0) > mine["epoch"])
            status, problem = ask(
                served[0],
                "POST",
                f"{path}/late/acknowledge",
                {"partition": mine["partition"], "epoch": mine["epoch"], "sequence_number": 1},
            )
            assert (status, problem["type"]) == (409, "urn:headwater:problem:consumer_fenced")
            assert (problem["given"], problem["current"]) == (1, 2)
            with pytest.raises(errors.ConsumerFenced):
                log._transport.call(log._routes.done("g", "next", client_done(mine["partition"], 1)))
            assert sorted(take(work, 4)) == [1, 2, 3, 4], "nothing was passed over"

    def test_an_epoch_outlives_a_kill_of_the_server(self, tmp_path: Path) -> None:
        path = "/logs/default/groups/g/workers"
        for epoch in (1, 2):
            with RunningServer(cwd=tmp_path) as server:
                held = joined(server.url, f"{path}/w", {"lease_ms": 600_000})
                assert [each["epoch"] for each in held["partitions"]] == [epoch]
                late = {"partition": 0, "epoch": 1, "sequence_number": 0}
                status, _ = ask(server.url, "POST", f"{path}/w/acknowledge", late)
                assert status == (200 if epoch == 1 else 409)
                server.process.kill()

    def test_a_slow_batch_is_done_again_by_whoever_has_the_partition_then(self, log: RemoteLog) -> None:
        log.append([Event("T")] * 2, partition=0)
        with log.work("g", lease_s=600, start="earliest") as slow:
            batches = iter(slow)
            begun = next(batches)
            assert isinstance(begun, Batch) and len(begun.events) == 2
            # Its connections break; nobody is there to say that it is alive, for its server.
            log._transport.call(log._routes.leave("g", slow.worker))
            eventually(lambda: slow.partitions.get(0, 0) > begun.epoch)
            assert not slow.acknowledge(begun)
            assert take(slow, 2) == [1, 2]


class TestBesideAmqp:
    def test_a_receiver_and_a_worker_are_members_of_one_group(
        self, served: tuple[str, str], log: RemoteLog, begin: Begin
    ) -> None:
        work = begin(worker="over-http")
        eventually(lambda: len(work.partitions) == PARTITIONS)
        thread = threading.Thread(target=lambda: list(work))
        thread.start()
        with Client(served[1]) as client:
            receivers = [
                client.receiver(log.name, properties=bound(group="billing"), filter=EARLIEST) for _ in range(2)
            ]
            eventually(lambda: len(work.partitions) == 2)
            management = log_management(log)
            with pytest.raises(errors.EventLogError, match="stop the workers"):
                management.delete("consumerGroup", f"{log.name}/billing")
            shown = management.read("consumerGroup", f"{log.name}/billing")
            assert list(shown["owners"].values()).count("over-http") == 2 and shown["members"] == 4
            del receivers
        eventually(lambda: len(work.partitions) == PARTITIONS)
        work.close()
        thread.join()

    def test_each_goes_on_where_the_other_was(self, served: tuple[str, str], log: RemoteLog, begin: Begin) -> None:
        for number in range(3):
            log.append([Event("T", b"%d" % number)], partition=0)
        work = begin()
        assert take(work, 3) == [1, 2, 3]
        work.close()
        log.append([Event("T", b"3")], partition=0)
        with Client(served[1]) as client:
            receiver = client.receiver(log.name, properties=bound(0, "billing"), filter=EARLIEST)
            [delivery] = receiver.take(1)
            assert numbers([delivery]) == [3]
            delivery.settle()
            client.flush()
        log.append([Event("T", b"4")], partition=0)
        assert take(begin(), 1) == [5]


class TestAsyncio:
    def test_the_same(self, served: tuple[str, str], log: RemoteLog) -> None:
        expected = put(log, 5)

        async def share() -> list[int]:
            done: list[int] = []
            both_there = asyncio.Event()

            async def work_on(work: aio.Work) -> None:
                async for batch in work:
                    done.extend(event.sequence_number for event in batch)
                    await asyncio.sleep(0)

            async with aio.connect(served[0]) as server:
                orders = server.log(log.name)
                async with orders.work("a", start="earliest") as first, orders.work("a", start="earliest") as second:
                    tasks = [asyncio.create_task(work_on(work)) for work in (first, second)]
                    while not (len(first.partitions) == len(second.partitions) == 2 and len(done) >= 20):
                        await asyncio.sleep(0.005)
                    both_there.set()
                    await second.close()
                    while len(first.partitions) < PARTITIONS:
                        await asyncio.sleep(0.005)
                    await first.close()
                    await asyncio.gather(*tasks)
            return done

        async def bounded() -> list[int]:
            async with asyncio.timeout(60):
                return await share()

        assert set(asyncio.run(bounded())) == set(expected)


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cwd = tmp_path_factory.mktemp("limited")
    with RunningServer("--storage", "memory", "--amqp-termini-max", "10", cwd=cwd) as server:
        yield server.url


class TestOneName:
    @pytest.mark.parametrize("is_awaited", [False, True])
    def test_the_first_of_two_processes_ends_with_an_error_and_the_second_goes_on(
        self, served: tuple[str, str], log: RemoteLog, begin: Begin, is_awaited: bool
    ) -> None:
        async def awaited() -> None:
            async with aio.connect(served[0]) as server, server.log(log.name).work("billing", worker="w") as first:
                await asyncio.to_thread(eventually, lambda: len(first.partitions) == PARTITIONS)
                second = await asyncio.to_thread(begin, worker="w")
                with pytest.raises(errors.ConsumerFenced):
                    async for _ in first:
                        pass
                await asyncio.to_thread(eventually, lambda: len(second.partitions) == PARTITIONS)

        if is_awaited:
            asyncio.run(awaited())
        else:
            first = begin(worker="w")
            eventually(lambda: len(first.partitions) == PARTITIONS)
            second = begin(worker="w")
            with pytest.raises(errors.ConsumerFenced):
                next(iter(first))
            eventually(lambda: len(second.partitions) == PARTITIONS)
            first.close()
            assert sorted(take(second, len(numbers := put(log, 2)))) == numbers


class TestManyAtOnce:
    def test_beats_that_wait_leave_room_for_other_requests(self, served: tuple[str, str], log: RemoteLog) -> None:
        async def ask_beside() -> int:
            async with aio.connect(served[0]) as server:
                transport, routes = server.log(log.name)._transport, log._routes
                versions = [
                    (await transport.call(routes.beat("g", str(name), BeatBody(600_000, 0, None, None)))).version
                    for name in range(UNDER_WAY_MAX + PARTITIONS)
                ]
                beats = [
                    asyncio.create_task(transport.call(routes.beat("g", str(name), BeatBody(600_000, 25_000, version))))
                    for name, version in enumerate(versions)
                ]
                try:
                    async with asyncio.timeout(10):
                        while sum(not beat.done() for beat in beats) < UNDER_WAY_MAX:
                            await asyncio.sleep(0)
                        await asyncio.sleep(0)
                        return await server.log(log.name).head()
                finally:
                    for beat in beats:
                        beat.cancel()
                    await asyncio.gather(*beats, return_exceptions=True)

        assert asyncio.run(ask_beside()) == 0


class TestLimits:
    """Of a server that remembers ten positions: two and a half groups of logs of four partitions."""

    @pytest.fixture
    def full(self, limited: str) -> Iterator[RemoteLog]:
        """A log that remembers no more positions."""
        with connect(limited, retry_s=0) as server, ExitStack() as working:
            log = server.create(f"orders{next(_names)}", LogSettings(partitions=PARTITIONS))
            for group, count in (("a", 4), ("b", 4), ("c", 2)):
                work = working.enter_context(log.work(group, worker=group))
                eventually(lambda: len(work.partitions) == count)  # noqa: B023
            yield log

    def test_a_worker_that_can_have_nothing_is_told(self, full: RemoteLog) -> None:
        with (
            full.work("mine", start="earliest") as work,
            pytest.raises(errors.InvalidInput, match="10 group positions"),
        ):
            next(iter(work))
        assert sorted(groups_of(full)) == [f"{full.name}/{group}" for group in "abc"], "and nothing is left of it"

    def test_the_beat_of_a_worker_that_can_have_no_more_waits(self, limited: str, full: RemoteLog) -> None:
        path = f"/logs/{full.name}/groups/c/workers/c"
        _, before = ask(limited, "PUT", path, {})  # of the same name: that one is fenced
        while len(before["partitions"]) < 2:
            _, before = ask(limited, "PUT", path, {"version": before["version"], "wait_ms": 25_000})
        version = before["version"]
        _, held = ask(limited, "PUT", path, {"version": version, "wait_ms": 600})
        assert held["version"] == version and len(held["partitions"]) == 2
        assert log_management(full).read("consumerGroup", f"{full.name}/c")["epochs"] == {"0": 2, "1": 2}


class TestInput:
    @pytest.mark.parametrize(
        ("body", "status", "problem"),
        [
            ({"lease_ms": 499}, 400, "500 to 600000"),
            ({"wait_ms": 25_001}, 400, "0 to 25000"),
            ({"start": "middle"}, 400, "start"),
            ({"more": 1}, 400, "more"),
        ],
    )
    def test_a_beat_is_checked(
        self, served: tuple[str, str], log: RemoteLog, body: object, status: int, problem: str
    ) -> None:
        found, said = ask(served[0], "PUT", f"/logs/{log.name}/groups/g/workers/w", body)
        assert found == status and problem in said["detail"]

    def test_names_are_checked(self, served: tuple[str, str], log: RemoteLog) -> None:
        status, said = ask(served[0], "PUT", f"/logs/{log.name}/groups/{'g' * 257}/workers/w", {})
        assert (status, said["parameter"]) == (400, "group")
        status, said = ask(served[0], "PUT", f"/logs/{log.name}/groups/a%0Ab/workers/w", {})
        assert status == 400

    @pytest.mark.parametrize("number", [-1, 5])
    def test_a_number_that_cannot_be_is_told(self, served: tuple[str, str], log: RemoteLog, number: int) -> None:
        body = {"partition": 0, "epoch": 1, "sequence_number": number}
        status, said = ask(served[0], "POST", f"/logs/{log.name}/groups/g/workers/w/acknowledge", body)
        assert status == 400 and "0 to the head 0" in said["detail"]

    def test_a_lease_is_checked_before_anything_is_sent(self, log: RemoteLog) -> None:
        with pytest.raises(errors.InvalidInput, match="lease_s"):
            log.work("g", lease_s=0.1)


def client_done(partition: int, epoch: int) -> Any:
    from headwater.client.protocol.wire import DoneBody

    return DoneBody(partition, epoch, 1)


def log_management(log: RemoteLog) -> Any:
    from headwater.client.sync.management import Management

    return Management(log._transport)


def groups_of(log: RemoteLog) -> list[str]:
    found = log_management(log).query("consumerGroup", "name")
    return [name for row in found.rows if (name := str(row[0])).startswith(f"{log.name}/")]
