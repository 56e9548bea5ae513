"""A command whose standard output is a terminal."""

from __future__ import annotations

import os
import pty
import select
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.server.running import SILENCE_S_MAX, environment
from tests.server.starting import start


def shown_on_a_terminal(
    arguments: Sequence[str], *, cwd: Path, meanwhile: Callable[[], object] = lambda: None, **variables: str
) -> bytes:
    """What the command writes there until it ends; `meanwhile` is called while it runs."""
    ours, theirs = pty.openpty()
    with start(arguments, cwd=cwd, env=environment(TERM="xterm", **variables), stdout=theirs) as process:
        os.close(theirs)
        meanwhile()
        assert process.wait(SILENCE_S_MAX) == 0
    shown = b""
    while select.select([ours], [], [], 0)[0]:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # all was read
            break
    os.close(ours)
    return shown
