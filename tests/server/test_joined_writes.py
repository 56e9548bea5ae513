import asyncio
import functools
from collections.abc import Callable, Coroutine

from headwater.server.joined_writes import JOINED_BYTES_MAX, JoinedWrites


def on_a_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """A test that is a coroutine function, as pytest runs it."""

    @functools.wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class Recorder:
    """A transport that notes what it is asked for."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


@on_a_loop
async def test_what_is_written_in_one_turn_of_the_loop_leaves_in_one_piece() -> None:
    recorder = Recorder()
    transport = JoinedWrites(recorder, asyncio.get_running_loop())
    transport.write(b"head ")
    transport.write(b"body")
    assert recorder.written == []
    await asyncio.sleep(0)
    transport.write(b"next")
    await asyncio.sleep(0)
    assert recorder.written == [b"head body", b"next"]


@on_a_loop
async def test_much_leaves_at_once() -> None:
    recorder = Recorder()
    transport = JoinedWrites(recorder, asyncio.get_running_loop())
    transport.write(b"head ")
    transport.write(bytes(JOINED_BYTES_MAX))
    assert recorder.written == [b"head " + bytes(JOINED_BYTES_MAX)]
    await asyncio.sleep(0)
    assert len(recorder.written) == 1


@on_a_loop
async def test_closing_sends_what_was_written_before_and_nothing_after() -> None:
    recorder = Recorder()
    transport = JoinedWrites(recorder, asyncio.get_running_loop())
    transport.write(b"last")
    transport.close()
    assert recorder.written == [b"last"] and transport.is_closing()
    transport.write(b"too late")
    await asyncio.sleep(0)
    assert recorder.written == [b"last"]
