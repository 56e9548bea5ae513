"""A process that appends until it is killed: `python -m tests.crash.writer DIRECTORY ROUND [FAULT]`.

Each line on its standard output is an acknowledgement, written after the log has answered: JSON of what may never be
lost. Payloads follow from the ids, so that the reader of the log can tell whether they are intact.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import sys
import threading
import traceback

from headwater.core import Event
from headwater.core.errors import DiskFull
from headwater.core.loop.async_log import AsyncLog
from headwater.storage import Engine

from .faults import fault_disk

NAME = "orders"
WRITERS, LOOP_WRITERS = 2, 4
"""How many threads append, and how many tasks of an event loop."""


def payload_of(id: str) -> bytes:
    """The payload that goes with an id: 0 to 8 KiB."""
    digest = hashlib.sha256(id.encode()).digest()
    return digest * (int.from_bytes(digest[:1]) if digest[1] < 25 else digest[2] % 8)


def event_of(id: str) -> Event:
    """The event that goes with an id."""
    writer, _, _ = id.partition(".")
    return Event(f"W{writer}", payload_of(id), (f"id:{id}", f"writer:{writer}"), id)


def main(directory: str, round: str, fault: str = "") -> None:
    """Append with several threads and tasks, trim and acknowledge with one thread, until the end."""
    threading.excepthook = end
    log = Engine(directory, disk=fault_disk(fault)).create(NAME)
    tell(opened=log.head())

    def append(writer: int) -> None:
        chance = random.Random(f"{round}.{writer}")
        for call in range(1_000_000):
            ids = [f"{writer}.{round}.{call}.{place}" for place in range(chance.choice((1, 1, 1, 2, 3, 40)))]
            try:
                result = log.append([event_of(id) for id in ids])
            except DiskFull:
                continue
            tell(first=result.first, ids=ids)

    def tend() -> None:
        log.register_consumer("crash", "reader", after=log.info().first_retained - 1)
        while True:
            head = log.head()
            tell(acknowledged=log.acknowledge("crash", "reader", max(head - 50, 0)).acknowledged)
            tell(trimmed=log.trim(max(head - 2000, 0)))

    async def append_in_loop(face: AsyncLog, writer: int) -> None:
        for call in range(1_000_000):
            ids = [f"{writer}.{round}.{call}.{place}" for place in range(1 + call % 3)]
            try:
                result = await face.append([event_of(id) for id in ids])
            except DiskFull:
                continue
            tell(first=result.first, ids=ids)
            await asyncio.sleep(call % 2 / 1000)

    async def loop() -> None:
        face = AsyncLog(log)
        async with asyncio.TaskGroup() as group:
            for writer in range(WRITERS, WRITERS + LOOP_WRITERS):
                group.create_task(append_in_loop(face, writer))

    threads = [threading.Thread(target=append, args=(writer,)) for writer in range(WRITERS)]
    for thread in [*threads, threading.Thread(target=tend), threading.Thread(target=lambda: asyncio.run(loop()))]:
        thread.start()


def end(failure: threading.ExceptHookArgs) -> None:
    """A thread that fails ends them all: whoever listens is not left with those that go on."""
    traceback.print_exception(failure.exc_value)
    os._exit(1)


def tell(**what: object) -> None:
    """One line, in one piece."""
    os.write(1, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
