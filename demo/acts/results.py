"""One screen: what was done, and where to look next."""

from __future__ import annotations

from ..stage import LOG, Stage

TITLE = "What you have seen"
NEXT = (
    ("docs/start.md", "from nothing to a first decision in ten minutes"),
    ("docs/guides/import.md", "your own events: CSV, NDJSON, CloudEvents, OCEL"),
    ("docs/guides/spark.md", "read, write and archive logs with Spark"),
    ("examples/", "short programs to start from"),
    ("ARCHITECTURE.md", "how it works, file by file"),
)


def play(stage: Stage) -> None:
    """Show the results; with --keep, how to go on with the server that stays."""
    stage.show_results("on this machine, client and server together", NEXT)
    if stage.keeps:
        _show_kept(stage)
    else:
        stage.say("server and data are removed now; [bold]make demo KEEP=1[/] leaves them running")
    stage.curtain()


def _show_kept(stage: Stage) -> None:
    url = stage.server.url
    read = '{"query":{"items":[{"tags":["tail:N725MQ"]}]},"backwards":true,"limit":3}'
    stage.say(f"[bold]The server stays:[/] {url}, process {stage.server.pid}, data in {stage.server.directory}")
    stage.say(f"In a browser: [bold]{url}/console/[/]; one aircraft: {url}/console/logs/{LOG}?q=tag=tail:N725MQ")
    for command in (
        f"export HEADWATER_URL={url}",
        ".venv/bin/headwater logs",
        f".venv/bin/headwater query {LOG} 'type=FlightCancelled tag=origin:EWR'",
        f".venv/bin/headwater read {LOG} --tag tail:N725MQ --backwards --limit 5",
        f".venv/bin/headwater tail {LOG}",
        f"curl -s -H content-type:application/json {url}/logs/{LOG}/read -d '{read}'",
        f"curl -s {url}/metrics",
        f"kill {stage.server.pid} && sleep 2 && rm -r {stage.server.directory}",
    ):
        stage.console.print(f"    {command}", markup=False, soft_wrap=True)
