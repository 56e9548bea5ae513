"""The progress of a command that runs for a long time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int], None]
"""Called with a name, the amount done, and the total."""


@contextmanager
def progress_bar(verb: str) -> Iterator[Progress | None]:
    """A progress bar on stderr if that is a terminal, otherwise None."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(verb, total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=f"{verb} {what}", completed=done, total=total)

        yield show
