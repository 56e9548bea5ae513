"""`headwater serve`, observed from inside: what CPU it spends, and how long at a time it is there for nobody else.

    python -m tests.cost.observed SOCKET serve ...

Whoever connects to the Unix socket SOCKET gets one line of JSON, and everything begins at nought again.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

from headwater.cli.main import main
from headwater.server.process.event_loop import EventLoop

TICK_S = 0.001


class Observer:
    """The longest step of the event loop, and the longest time without the interpreter, since it was last asked."""

    def __init__(self) -> None:
        self.began_s = time.process_time()
        self.step_s = self.hold_s = 0.0
        self.turns = 0
        """Of the loop, since the start: where they do not grow, no step is seen."""

    def answer(self) -> dict[str, float]:
        """Seconds of CPU: of all threads together, of the longest step of the loop, of the longest hold."""
        now_s = time.process_time()
        found = {"whole": now_s - self.began_s, "step": self.step_s, "hold": self.hold_s, "turns": self.turns}
        self.began_s, self.step_s, self.hold_s = now_s, 0.0, 0.0
        return found

    def observe(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give a loop a timer: the CPU time of its thread between two calls of that is about one turn."""
        before_s = 0.0

        def turn() -> None:
            nonlocal before_s
            now_s = time.thread_time()
            self.turns += 1
            self.step_s = max(self.step_s, now_s - before_s)
            before_s = now_s
            loop.call_later(TICK_S, turn)

        def begin() -> None:
            nonlocal before_s
            before_s = time.thread_time()
            turn()

        loop.call_soon(begin)

    def watch(self) -> None:
        """Look how late this thread is, for want of the interpreter: it was ready to run, and so was a core for it."""
        waits = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        before, before_cpu_s, before_wait_s = time.perf_counter(), time.process_time(), _run_delay_s(waits)
        while True:
            time.sleep(TICK_S)
            now, cpu_s, wait_s = time.perf_counter(), time.process_time(), _run_delay_s(waits)
            late_s = now - before - TICK_S - (wait_s - before_wait_s)
            self.hold_s = max(self.hold_s, min(late_s, cpu_s - before_cpu_s))
            before, before_cpu_s, before_wait_s = now, cpu_s, wait_s

    def serve(self, path: str) -> None:
        """Answer whoever asks."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            while True:
                peer, _ = listener.accept()
                with peer:
                    peer.sendall(json.dumps(self.answer()).encode())


def _run_delay_s(path: Path) -> float:
    """How long the thread waited for a core in all; the kernel's own account of it."""
    return int(path.read_bytes().split()[1]) / 1e9


if __name__ == "__main__":
    observer = Observer()
    _init = EventLoop.__init__

    def observed(loop: EventLoop, *arguments: object) -> None:
        """Every loop of the server is observed from its beginning."""
        _init(loop, *arguments)
        observer.observe(loop)

    EventLoop.__init__ = observed  # type: ignore[method-assign]
    for work in (observer.watch, lambda: observer.serve(sys.argv[1])):
        threading.Thread(target=work, daemon=True).start()
    sys.argv = [os.path.basename(sys.argv[0]), *sys.argv[2:]]
    main()
