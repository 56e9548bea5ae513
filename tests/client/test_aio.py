"""The client for asyncio: what the contract does not ask of it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.amqp.certificates import Authority
from tests.client.served_memory import CuttingProxy, ServedMemory
from tests.server.running import RunningServer

from headwater.client import ServerUnreachable
from headwater.client.aio import connect
from headwater.client.aio.connection import HELD_BYTES_MAX
from headwater.client.aio.primitives import UNDER_WAY_MAX
from headwater.client.protocol.terms import IDLE_CONNECTIONS_MAX
from headwater.core import AppendCondition, Event, Query, errors
from headwater.core.settings import LogSettings

Scenario = Callable[[], Coroutine[Any, Any, None]]


def run(scenario: Scenario) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(bounded())


def test_a_decision_is_read_taken_and_appended(served: ServedMemory) -> None:
    async def scenario() -> None:
        async with connect(served.url) as server:
            orders = await server.create("orders")
            await orders.append([Event("OrderPlaced", b"{}", ("order:17",))])
            query = Query.where(tags=["order:17"])
            reading = await orders.read(query)
            assert [event.type async for event in reading] == ["OrderPlaced"]
            condition = AppendCondition(query, reading.head)
            assert await orders.append([Event("OrderPaid", b"", ("order:17",))], condition) == (2, 2, False)
            with pytest.raises(errors.AppendConditionFailed):
                await orders.append([Event("OrderPaid", b"", ("order:17",))], condition)

    run(scenario)


def test_logs_are_created_changed_and_deleted(served: ServedMemory) -> None:
    async def scenario() -> None:
        async with connect(served.url) as server:
            assert await server.ensure("a") and not await server.ensure("a")
            with pytest.raises(errors.InvalidSettings, match="partitions: cannot change after creation"):
                await server.change("a", LogSettings(partitions=2))
            assert await server.logs() == ["a"]
            await server.delete("a")
            assert await server.logs() == []
        with pytest.raises(ServerUnreachable, match="this client was closed"):
            await server.logs()

    run(scenario)


def test_a_thousand_tasks_are_no_thousand_connections(served: ServedMemory) -> None:
    async def scenario() -> None:
        async with connect(served.url) as server:
            log = await server.create("orders")
            places = server._transport._places
            assert places is not None
            results = await asyncio.gather(*[log.append([Event("A", b"%d" % number)]) for number in range(1000)])
            assert sorted(result.first for result in results) == list(range(1, 1001))
            assert places._value == UNDER_WAY_MAX
            assert 0 < len(server._transport.targets.current.idle) <= IDLE_CONNECTIONS_MAX

    run(scenario)


def test_one_connection_carries_one_request_after_another_refused_ones_too(served: ServedMemory) -> None:
    async def scenario() -> None:
        async with connect(served.url) as server:
            log = await server.create("orders")
            await log.append([Event("A")])
            (idle,) = server._transport.targets.current.idle
            assert await log.head() == 1
            assert len(await (await log.read()).rest()) == 1
            with pytest.raises(errors.InvalidPosition):
                await log.trim(9)
            assert list(server._transport.targets.current.idle) == [idle] and not idle.is_stale()

    run(scenario)


def test_an_append_whose_answer_was_lost_is_stored_once(cutting: Callable[..., CuttingProxy]) -> None:
    proxy = cutting(0, 0, 20)

    async def scenario() -> None:
        async with connect(proxy.url, retry_s=20) as lossy:
            log = await lossy.create("orders")
            result = await log.append([Event("A"), Event("B")])
            assert (result.first, result.last) == (1, 2)
            assert await log.head() == 2

    run(scenario)


def test_a_read_goes_on_where_its_connection_broke(served: ServedMemory, cutting: Callable[..., CuttingProxy]) -> None:
    served.store.create("orders").append([Event("A", b"x" * 1000) for _ in range(2000)])
    proxy = cutting(500_000, 700_000)

    async def scenario() -> None:
        async with connect(proxy.url, retry_s=10) as lossy:
            reading = await lossy.log("orders").read(limit=1900)
            assert [event.sequence_number async for event in reading] == list(range(1, 1901))

    run(scenario)


def test_a_read_that_is_cancelled_goes_on_when_it_is_asked_again(served: ServedMemory) -> None:
    served.store.create("orders").append([Event("A", b"x" * 1000) for _ in range(2000)])

    async def scenario() -> None:
        async with connect(served.url) as server:
            reading = await server.log("orders").read()
            seen: list[int] = []
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0):
                        while page := await reading.next_page():
                            seen += [event.sequence_number for event in page]
                        await asyncio.sleep(1)
                assert len(seen) < 2000
            assert seen + [event.sequence_number for event in await reading.rest()] == list(range(1, 2001))

    run(scenario)


def test_what_waits_for_a_place_when_its_client_is_closed_is_not_sent(served: ServedMemory) -> None:
    async def scenario() -> None:
        async with connect(served.url) as server:
            places = server._transport._places
            assert places is not None
            for _ in range(UNDER_WAY_MAX):
                await places.acquire()
            waiting = asyncio.create_task(server.logs())
            await asyncio.sleep(0)
        places.release()
        with pytest.raises(ServerUnreachable, match="this client was closed"):
            await waiting

    run(scenario)


def test_what_is_not_taken_is_not_received_without_end(served: ServedMemory) -> None:
    served.store.create("orders").append([Event("A", b"x" * 1000) for _ in range(20_000)])

    async def scenario() -> None:
        async with connect(served.url) as server:
            reading = await server.log("orders").read()
            first = await anext(reading)
            stream = reading._stream
            assert stream is not None and stream._connection is not None
            connection = stream._connection
            while not connection._is_paused:
                await asyncio.sleep(0.01)
            held = connection._held_bytes
            assert held <= HELD_BYTES_MAX + 4 * 1024 * 1024  # and what one event of the loop brought
            await asyncio.sleep(0.1)
            assert connection._held_bytes == held
            assert first.sequence_number == 1
            assert len(await reading.rest()) == 19_999

    run(scenario)


def test_who_cancels_leaves_no_answer_to_others(served: ServedMemory) -> None:
    async def scenario() -> None:
        async with connect(served.url) as server:
            log = await server.create("orders")
            for number in range(20):
                task = asyncio.create_task(log.append([Event("A", b"%d" % number)]))
                for _ in range(number % 5):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert await log.head() == (await log.info()).head

    run(scenario)


def test_a_subscription_catches_up_follows_and_ends(served: ServedMemory) -> None:
    async def scenario() -> None:
        async with connect(served.url) as server:
            log = await server.create("orders")
            await log.append([Event("A")] * 3)
            seen: list[int] = []
            async with await log.subscribe() as subscription:

                async def follow() -> None:
                    async for event in subscription:
                        seen.append(event.sequence_number)

                following = asyncio.create_task(follow())
                while seen != [1, 2, 3]:
                    await asyncio.sleep(0.01)
                await log.append([Event("B")])
                while seen != [1, 2, 3, 4]:
                    await asyncio.sleep(0.01)
            await following
            assert subscription.cursor == 4

    run(scenario)


def test_a_poll_that_is_cancelled_loses_nothing(served: ServedMemory) -> None:
    async def scenario() -> None:
        async with connect(served.url) as server:
            log = await server.create("orders")
            async with await log.subscribe() as subscription:
                seen: list[int] = []
                for number in range(1, 30):
                    await log.append([Event("A")])
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.001 * (number % 7)):
                            while True:
                                seen += [event.sequence_number for event in await subscription.poll(None)]
                seen += [event.sequence_number for event in await subscription.poll(0)]
                assert seen == list(range(1, 30))

    run(scenario)


def test_a_server_that_comes_back_is_followed_on(served: ServedMemory) -> None:
    async def scenario() -> None:
        async with connect(served.url, retry_s=30) as server:
            log = await server.create("orders")
            await log.append([Event("A")])
            async with await log.subscribe() as subscription:
                assert len(await subscription.poll(5)) == 1
                await asyncio.to_thread(served.stop)
                served.store.open("orders").append([Event("while away")])
                await asyncio.to_thread(served.start)
                assert [event.sequence_number for event in await subscription.poll(None)] == [2]

    run(scenario)


def test_it_goes_over_a_unix_socket_and_says_when_nobody_is_there(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{"logs":[]} ')
        await reader.read()
        writer.close()

    async def scenario() -> None:
        path = tmp_path / "http.sock"
        served = await asyncio.start_unix_server(answer, path)
        async with served, connect(f"http+unix://{path}", retry_s=0) as server:
            assert await server.logs() == []
            path.unlink()
            server._transport.targets.current.idle.pop().close()
            with pytest.raises(ServerUnreachable, match="No such file"):
                await server.logs()

    run(scenario)


def test_a_reading_left_in_the_middle_costs_nothing_else(served: ServedMemory) -> None:
    served.store.create("orders").append([Event("A", b"x" * 10_000) for _ in range(500)])

    async def scenario() -> None:
        async with connect(served.url) as server:
            log = server.log("orders")
            for _ in range(3):
                assert (await anext(await log.read())).sequence_number == 1
                gc.collect()
                assert await log.head() == 500

    run(scenario)


def test_tls_is_checked_and_its_absence_told(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    own = authority.issue("localhost", "DNS:localhost")
    tls = ["--tls-certificate", str(own.file), "--tls-key", str(own.key)]

    async def scenario(url: str) -> None:
        async with connect(url, ca_file=str(authority.own.file)) as server:
            log = await server.create("orders")
            assert (await log.append([Event("A", b"x" * 300_000)])).last == 1
            assert [len(event.data) async for event in await log.read()] == [300_000]
        async with connect(url) as server:
            with pytest.raises(ServerUnreachable, match="its certificate is not trusted"):
                await server.logs()
        async with connect(url.replace("https", "http")) as server:
            with pytest.raises(ServerUnreachable, match="the server expects TLS on that port"):
                await server.logs()

    with RunningServer("--storage", "memory", *tls, cwd=tmp_path) as running:
        run(lambda: scenario(running.url.replace("127.0.0.1", "localhost")))
