"""A database with a standby, and three servers, as one command each starts them."""

from __future__ import annotations

import io
import time
from contextlib import redirect_stdout

from headwater.cli.main import run

from ...server_process import ServerFailed
from ..stage import ReplicaStage

TITLE = "Three servers, one home"


def play(stage: ReplicaStage) -> None:
    """Start PostgreSQL, make the home in it, start the servers."""
    started = time.perf_counter()
    stage.start_database()
    assert stage.database is not None
    stage.say(
        f"PostgreSQL runs on [bold]{stage.database.name}[/] after {time.perf_counter() - started:.1f} s; each commit "
        f"waits for its standby [bold]{stage.database.other}[/]"
    )
    _run(stage, "home", "init", "--home", stage.home)
    _run(stage, "home", "promotion", stage.database.promotion, "--home", stage.home)
    stage.add_machines()
    first, *others = stage.machines
    started = time.perf_counter()
    first.start()
    first.await_role("primary")
    for machine in others:
        machine.start()
    for machine in others:
        machine.await_role("replica")
    stage.say(f"[bold]{' '.join(first.command)}[/]")
    stage.say(f"and the same on two more machines; all serve after {time.perf_counter() - started:.1f} s")
    stage.say(f"[bold]{first.name}[/] is the primary; {others[0].name} says: {others[0].why_it_stands_by()}")


def _run(stage: ReplicaStage, *arguments: str) -> None:
    with redirect_stdout(io.StringIO()) as told:
        code = run(arguments)
    if code:
        raise ServerFailed(f"the home could not be made: {told.getvalue().strip()}")
    stage.say(f"[bold]headwater {' '.join(arguments)}[/]")
