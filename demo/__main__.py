"""Plays the acts in order, and cleans up after itself, whatever happens in between."""

from __future__ import annotations

import argparse
import signal
import sys
import time

from headwater.core.errors import EventLogError

from .acts import ACTS
from .flights import DataMissing
from .server_process import ServerFailed
from .stage import Stage


def main() -> int:
    """Play; answers the exit code."""
    parser = argparse.ArgumentParser(prog="demo", description="Headwater's whole story on real data.")
    parser.add_argument("--keep", action="store_true", help="leave the server running, with its data")
    keeps = parser.parse_args().keep
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Stage(keeps=keeps) as stage:
        try:
            for number, act in enumerate(ACTS, 1):
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


if __name__ == "__main__":
    sys.exit(main())
