"""`python -m tests.load KIND`: put a load on a server of its own, and print what came of it. See the package."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.measure import disk_bytes
from rich.console import Console
from rich.table import Table

from tests.homes.postgres_server import fast_folder

from .chaos.chaos import Chaos
from .hostile import memory
from .hostile.attacks import ATTACKS
from .hostile.street import Street
from .place import LOG, Place
from .readers import READERS
from .run import Faulty, Run, stored_in
from .server import MortalServer
from .soak import Soak
from .vitals import MIB
from .writers import WRITERS

TELL_S = 10.0
Told = Callable[[str], object]
_began = time.monotonic()
console = Console(highlight=False)


def told(what: str) -> None:
    """Print it, with the time."""
    console.print(f"{time.monotonic() - _began:6.1f} s {what}", markup=False, soft_wrap=True)


def soak(folder: Path, seconds: float, seed: int, _: argparse.Namespace) -> tuple[Run, list[str]]:
    """Clients of all protocols on one server that is killed again and again."""
    run, done = Soak(folder, seconds, seed, told), threading.Event()
    telling = threading.Thread(target=_tell, args=(run, done), daemon=True)
    telling.start()
    try:
        faults = run.run()
    finally:
        done.set()
        telling.join()
    _print_soak(run, disk_bytes(folder))
    return run, faults


def chaos(folder: Path, seconds: float, seed: int, _: argparse.Namespace) -> tuple[Run, list[str]]:
    """Three servers of a home, while servers, network and database fail."""
    run = Chaos(folder, seconds, seed, told)
    if faults := run.run():
        for member in run.members:
            kept = Path(tempfile.gettempdir()) / f"headwater-chaos-{seed}-{member.name}.log"
            kept.write_text(member.said())
            console.print(f"what server {member.name} said: {kept}")
    console.print("happened:", dict(run.happened), f"; every writer was answered again within {run.slowest_s:.1f} s")
    return run, faults


def street(folder: Path, seconds: float, seed: int, given: argparse.Namespace) -> tuple[Run, list[str]]:
    """One hostile client of each protocol in turn, beside good ones."""
    with Street(MortalServer(folder, retry_ms_max=None), seed, told) as run:
        try:
            run.calm(seconds / 2)
            for protocol in ATTACKS:
                done = run.attack(protocol, seconds, given.scale)
                told(f"{protocol}: {json.dumps(done)}; {run.server.open_files()} files")
            run.finish()
        except Faulty:
            pass
        faults = run.all_faults()
    console.print(run.table(), markup=False)
    return run, faults


def steady(_: Path, seconds: float, seed: int, given: argparse.Namespace) -> tuple[Run, list[str]]:
    """Clients of all protocols on a server that is there already; nobody else may write to its log."""
    password = os.environ["HEADWATER_PASSWORD"]
    place = Place(given.http, given.amqp, given.flight, given.user, password)
    with place.client() as server:
        if LOG not in server.logs():
            server.create(LOG)
    run = Run(seed, told)
    run.writers, run.readers = run.make(place, WRITERS), run.make(place, READERS)
    try:
        run.begin()
        run.wait(seconds)
        run.catch_up()
        run.compare(stored_in(place))
    except Faulty:
        pass
    finally:
        run.give_up()
    return run, run.all_faults()


KINDS = {"steady": (steady, 60.0), "soak": (soak, 600.0), "chaos": (chaos, 600.0), "street": (street, 30.0)}
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
    parser.add_argument("--only", action="append", metavar="NAME", help=f"hostile: {', '.join(memory.LOADS)}")
    given = parser.parse_args(arguments)
    if given.kind == "hostile":
        return memory.main(given.only, told)
    run_it, seconds = KINDS[given.kind]
    seed = given.seed or int(time.time())
    console.print(f"seed {seed}")
    within = fast_folder() if given.kind == "chaos" else None
    with tempfile.TemporaryDirectory(prefix=f"headwater-{given.kind}-", dir=within) as directory:
        run, faults = run_it(Path(directory), given.seconds or seconds, seed, given)
    _print_rows(run, given.kind)
    for fault in faults:
        console.print(f"FAULT: {fault}", markup=False)
    if not faults:
        console.print(f"{run.acknowledged():,} events acknowledged; each is there once, in order, for every reader")
    return 1 if faults else 0


def _tell(run: Soak, done: threading.Event) -> None:
    while not done.wait(TELL_S):
        newest = {sample.role: sample for sample in run.sampler.samples[-4:]}
        vitals = ", ".join(
            f"{role} {its.rss_mib:.0f} MiB, {its.connections}+{its.files} open" for role, its in newest.items()
        )
        ends = ", ".join(f"{count} {how}" for how, count in run.server.ends.items())
        told(f"  {run.acknowledged():,} acknowledged; {vitals}; {ends or 'no kill yet'}")


def _print_rows(run: Run, title: str) -> None:
    table = Table("does", "client", title=title.capitalize(), title_justify="left")
    for heading in ("events", "again", "connections lost"):
        table.add_column(heading, justify="right")
    for row in run.rows():
        table.add_row(row.kind, row.name, *(f"{cell:,}" for cell in (row.events, row.again, row.losses)))
    console.print(table)


def _print_soak(run: Soak, disk: int) -> None:
    table = Table("process", "stretch", title="Memory and open files, without kills", title_justify="left")
    for heading in ("events", "RssAnon MiB", "connections", "files"):
        table.add_column(heading, justify="right")
    for name, role, first, last in run.stretches:
        cells = [f"{last.events - first.events:,}", f"{first.rss_mib:.1f} to {last.rss_mib:.1f}"]
        cells += [f"{first.connections} to {last.connections}", f"{first.files} to {last.files}"]
        table.add_row(role, name, *cells)
    console.print(table)
    console.print("ends:", ", ".join(f"{count} {how}" for how, count in run.server.ends.items()))
    for passer in run.passers:
        console.print("visits:", dict(passer.visits))
    console.print("managed:", dict(run.manager.answers), "connections lost:", run.manager.losses)
    console.print("heard:", dict(run.listener.heard), "lost:", run.listener.lost)
    holder, filler, trimmer = run.trimmer.consumer, run.trimmer.writer, run.trimmer
    console.print(
        f"trimmed: up to event {trimmer.first_retained:,} of {len(filler.acknowledged):,}, in {trimmer.trims} steps; "
        f"consumer at {holder.acknowledged:,}; {disk / MIB:.0f} MiB on disk"
    )


if __name__ == "__main__":
    sys.exit(main())
