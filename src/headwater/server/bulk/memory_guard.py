"""Ends the bulk process if it holds more memory than it may.

gRPC accepts messages of any size before it calls any code: pyarrow cannot set a limit. The memory of streams is counted
(`flight.server.memory`), and `connections` closes connections whose peers send more than the process accepts. For all
other memory, the process's anonymous memory is watched. If it is close to exceeding the budget by `SLACK_BYTES`, the
connections that hold the most are closed. If it does exceed it, the process logs that and exits. Its server starts
another process, and clients retry."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from ...core.shared_bytes import MIB
from ..process.log_lines import fields

logger = logging.getLogger("headwater.server")

SLACK_BYTES = 96 * MIB
"""Allowed in addition to the memory at start and the budget: gRPC's buffers, the stacks of its threads, and small
objects.
"""
LOOK_S, HURRY_S = 0.5, 0.02
"""The interval between checks, and the interval while the memory grows."""
GROWS_BYTES = 4 * MIB
NEAR_BYTES = 16 * MIB
"""When less than this is left, connections that hold much memory are closed."""
_STATUS = Path("/proc/self/status")


def anonymous_bytes() -> int:
    """The anonymous memory of this process; 0 if the system does not report it."""
    try:
        text = _STATUS.read_bytes()
    except OSError:
        return 0
    _, found, rest = text.partition(b"RssAnon:")
    return int(rest.split(None, 1)[0]) * 1024 if found else 0


def watch(
    bytes_max: int,
    exceeded: Callable[[], None],
    relieve: Callable[[], object] = lambda: None,
    look: Callable[[], int] = anonymous_bytes,
) -> threading.Event:
    """Watch from now on, in its own thread, until the returned event is set. `exceeded` is called once, and `relieve`
    at each check near the limit."""
    stopping = threading.Event()
    allowed = look() + bytes_max + SLACK_BYTES

    def run() -> None:
        try:
            run_until_exceeded()
        except BaseException:
            logger.exception("cannot monitor the memory of the bulk process; it exits")
            exceeded()

    def run_until_exceeded() -> None:
        before, pause_s = look(), LOOK_S
        while not stopping.wait(pause_s):
            now = look()
            if now > allowed:
                logger.error("the bulk process uses too much memory and exits", extra=fields(held=now, allowed=allowed))
                exceeded()
                return
            if now > allowed - NEAR_BYTES:
                relieve()
            pause_s = HURRY_S if now > before + GROWS_BYTES or now > allowed - SLACK_BYTES else LOOK_S
            before = now

    threading.Thread(target=run, name="headwater-memory", daemon=True).start()
    return stopping
