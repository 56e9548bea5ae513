"""What the acts share: the console, the server, a client of it, and the results so far."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table

from headwater.client import RemoteLog, Server, connect

from .server_process import ServerProcess

LOG = "flights"


class Result(NamedTuple):
    """A line of the last screen."""

    what: str
    number: str


class Scene:
    """What every performance has: who tells, what was found, a directory."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self.results: list[Result] = []
        self.directory = Path(tempfile.mkdtemp(prefix="headwater-demo-"))

    def note(self, what: str, number: str) -> None:
        """Keep a result for the last screen."""
        self.results.append(Result(what, number))

    def say(self, text: str) -> None:
        """A line of the story."""
        self.console.print(Padding.indent(text, 2))

    def show_results(self, title: str, next_places: Sequence[tuple[str, str]]) -> None:
        """The last screen: what was found, and where to look next."""
        table = Table(box=None, show_header=False, padding=(0, 2))
        for result in self.results:
            table.add_row(result.what, f"[bold]{result.number}[/]")
        self.console.print(Panel(table, title=title, title_align="left"))
        self.say("[bold]Where to look next[/]")
        for place, what in next_places:
            self.say(f"  {place:24}{what}")


class Stage(Scene):
    """The set of one performance; leaving it stops the server and removes the data, unless they are to be kept."""

    def __init__(self, *, keeps: bool = False) -> None:
        super().__init__()
        self.keeps = keeps
        self.server = ServerProcess(self.directory, LOG)
        self._clients: list[Server] = []
        self._is_over = False

    def client(self, *, retry_s: float = 30.0) -> Server:
        """A client of the server as it runs now."""
        client = connect(self.server.url, retry_s=retry_s)
        self._clients.append(client)
        return client

    def log(self) -> RemoteLog:
        """The log of flights, over a client of its own."""
        return self.client().log(LOG)

    def curtain(self) -> None:
        """The story was told to its end: from here on, `keeps` counts."""
        self._is_over = True

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for client in self._clients:
            client.close()
        if self.keeps and self._is_over:
            self.server.leave_running()
            return
        try:
            self.server.stop()
        finally:
            shutil.rmtree(self.directory)
