"""A server, as one command starts it."""

from __future__ import annotations

from ..stage import LOG, Stage

TITLE = "A server"


def play(stage: Stage) -> None:
    """Start it on a free port, with its data in a temporary directory."""
    seconds = stage.server.start()
    ports = "--http-port 0 --amqp-port 0 --flight-port 0"
    stage.say(f"[bold]headwater serve --data {stage.server.directory / 'data'} {ports} --log {LOG}[/]")
    stage.say(f"listens on {stage.server.url} after {seconds:.1f} s; process {stage.server.pid}")
