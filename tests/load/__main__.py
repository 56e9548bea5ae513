"""`python -m tests.load KIND`: put a load on a server of its own, and print what came of it. See the package."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Drawn

from tests.homes.postgres_server import fast_folder

from .chaos.chaos import Chaos
from .hostile import loads, memory
from .hostile.street import Street
from .place import LOG, Place
from .readers import READERS
from .run import Run, Table
from .server import MortalServer
from .soak import Soak
from .writers import WRITERS

_began = time.monotonic()
console = Console(highlight=False)


def told(what: str) -> None:
    console.print(f"{time.monotonic() - _began:6.1f} s {what}", markup=False, soft_wrap=True)


def steady(_: Path, given: Any) -> Run:
    """Clients of all protocols on a server that is there already; nobody else may write to its log."""
    place = Place(given.http, given.amqp, given.flight, given.user, os.environ["HEADWATER_PASSWORD"])
    with place.client() as server:
        if LOG not in server.logs():
            server.create(LOG)
    run = Run(place, given.seconds, given.seed, told)
    run.writers, run.readers = run.make(*WRITERS), run.make(*READERS)
    return run


KINDS: dict[str, tuple[Callable[[Path, Any], Run], float]] = {
    "steady": (steady, 60.0),
    "soak": (lambda folder, given: Soak(folder, given.seconds, given.seed, told), 600.0),
    "chaos": (lambda folder, given: Chaos(folder, given.seconds, given.seed, told), 600.0),
    "street": (
        lambda folder, given: Street(
            MortalServer(folder, retry_ms_max=None), given.seconds, given.seed, told, scale=given.scale
        ),
        30.0,
    ),
}
"""With the seconds that they take unless they are told: the street's are of each protocol."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Answers the exit code: 1 if anything was lost, came twice, was told wrongly, or grew."""
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("kind", choices=(*KINDS, "hostile"))
    parser.add_argument("seconds", nargs="?", type=float)
    parser.add_argument("--seed", type=int, default=0, help="repeats what chance decides; 0 draws one")
    parser.add_argument("--scale", type=int, default=4, help="of the street: how much of everything at once")
    for name in ("http", "amqp", "flight", "user"):
        parser.add_argument(f"--{name}", help="steady: of the server; the password is in HEADWATER_PASSWORD")
    parser.add_argument("--only", action="append", metavar="NAME", help=f"hostile: {', '.join(loads.LOADS)}")
    given = parser.parse_args(arguments)
    if given.kind == "hostile":
        return 1 if memory.run_all(given.only, told) else 0
    make, seconds = KINDS[given.kind]
    given.seconds, given.seed = given.seconds or seconds, given.seed or int(time.time())
    console.print(f"seed {given.seed}")
    within = fast_folder() if given.kind == "chaos" else None
    with tempfile.TemporaryDirectory(prefix=f"headwater-{given.kind}-", dir=within) as directory:
        run = make(Path(directory), given)
        faults = run.run()
        for part in run.report():
            console.print(_drawn(part) if isinstance(part, Table) else part, markup=False)
    for fault in faults:
        console.print(f"FAULT: {fault}", markup=False)
    if not faults:
        console.print(f"{run.acknowledged():,} events acknowledged; each is there once, in order, for every reader")
    return 1 if faults else 0


def _drawn(table: Table) -> Drawn:
    drawn = Drawn(*table.headings[:2], title=table.title, title_justify="left")
    for heading in table.headings[2:]:
        drawn.add_column(heading, justify="right")
    for row in table.rows:
        drawn.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    return drawn


if __name__ == "__main__":
    sys.exit(main())
