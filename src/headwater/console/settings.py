"""The settings of the console: whether it is served, and whether it may change anything."""

from __future__ import annotations

from dataclasses import dataclass

from ..formats.settings.declaration import boolean, setting


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The console at `/console`."""

    enabled: bool = setting(True, boolean, "serve the console at /console")
    """Serve the [console](../guides/console.md) at `/console`. Without it everything below `/console` is 404, and a
    browser at `/` is not redirected there.
    """
    read_only: bool = setting(False, boolean, "make the console read-only")
    """Whether the console is read-only: requests of its pages that change something are refused (403), whatever its
    user may do elsewhere.
    """
