"""Plays acts in their order, and cleans up after itself, whatever happens in between."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from headwater.core.errors import EventLogError

from .flights import DataMissing
from .server_process import ServerFailed


def perform(stage: Any, acts: Sequence[Any]) -> int:
    """Play them on that stage, which it leaves; answers the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with stage:
        try:
            for number, act in enumerate(acts, 1):
                stage.console.print()
                stage.console.rule(f"[bold]{number}. {act.TITLE}", align="left")
                started = time.perf_counter()
                act.play(stage)
                stage.console.print(f"[dim]{time.perf_counter() - started:.1f} s[/]")
        except (EventLogError, ServerFailed, DataMissing, AssertionError) as error:
            stage.console.print(f"[bold red]the demo failed:[/] {error}")
            return 1
        except KeyboardInterrupt:
            stage.console.print("[bold]interrupted; cleaning up[/]")
            return 130
    return 0
