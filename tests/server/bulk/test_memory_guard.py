"""The bulk process ends where it holds too much: gRPC takes messages of any size before it asks anybody."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pyarrow.flight as flight

from headwater.core.shared_bytes import MIB
from headwater.server.bulk import memory_guard
from headwater.server.bulk.supervisor import BulkSettings, BulkSupervisor, Reservation


def test_what_it_had_when_it_began_its_budget_and_the_slack_are_allowed() -> None:
    begun, ended = 100 * MIB, threading.Event()
    held = iter([begun, begun, begun + 8 * MIB, begun + 8 * MIB + memory_guard.SLACK_BYTES])
    last = threading.Event()

    def look() -> int:
        try:
            return next(held)
        except StopIteration:
            last.set()
            return begun

    watching = memory_guard.watch(8 * MIB, ended.set, look)
    assert last.wait(30)
    assert not ended.is_set()
    watching.set()


def test_more_ends_it() -> None:
    held, ended = iter([100 * MIB, 100 * MIB, 100 * MIB + 8 * MIB + memory_guard.SLACK_BYTES + 1]), threading.Event()
    memory_guard.watch(8 * MIB, ended.set, lambda: next(held))
    assert ended.wait(30)


def test_the_anonymous_memory_of_this_process_is_known() -> None:
    assert MIB < memory_guard.anonymous_bytes() < 2**40


def test_one_message_of_a_stranger_that_is_too_large_for_the_process_ends_it_and_another_serves() -> None:
    reservation = Reservation("127.0.0.1", 0, "--flight-port")
    settings = BulkSettings(reservation.host, reservation.port, "", "", 1, True, 2**20, 0, 1000, "info", MIB)

    def say_much() -> None:
        with contextlib.suppress(flight.FlightError):
            client = flight.FlightClient(f"grpc://127.0.0.1:{reservation.port}")
            list(client.do_action(flight.Action("head", bytes(400 * MIB))))

    async def scenario() -> None:
        supervisor = BulkSupervisor(settings, reservation, {})
        await supervisor.start()
        async with asyncio.timeout(60):
            saying = asyncio.create_task(asyncio.to_thread(say_much))
            while not supervisor.deaths:
                await asyncio.sleep(0.01)
            while not supervisor.is_serving:
                await asyncio.sleep(0.01)
            await saying
        await supervisor.stop()

    asyncio.run(scenario())
    reservation.close()
