"""The settings of the console: whether it is served, and whether it may change anything."""

from __future__ import annotations

from dataclasses import dataclass

from ..formats.settings.declaration import boolean, setting


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The console at `/console`."""

    enabled: bool = setting(True, boolean, "serve the console at /console")
    """Whether there is a [console](../guides/console.md) at `/console`. Without it everything below `/console` is
    404, and `GET /` leads no browser there."""
    read_only: bool = setting(False, boolean, "let the console look, and change nothing")
    """Whether the console may only look: what a page of it asks for that changes something is refused (403), whatever
    its user may do elsewhere."""
