"""The settings of the console: whether it is served, and whether it may change anything."""

from __future__ import annotations

from dataclasses import dataclass

from ..formats.settings.declaration import boolean, setting


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The console at `/console`."""

    enabled: bool = setting(True, boolean, "serve the console at /console")
    """Serve the [console](../guides/console.md) at `/console`."""
    read_only: bool = setting(False, boolean, "make the console read-only")
    """Refuse (403) all requests by the console's pages that make changes."""
