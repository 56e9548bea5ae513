"""What the FutoIn endpoints of a server count, for its metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ..core.traffic import Traffic


@dataclass(slots=True)
class Statistics:
    """Since the server started. Only the event loop counts; any thread may read."""

    calls: Counter[str] = field(default_factory=Counter)
    """Calls that were found to be in order, by interface and function."""
    errors: Counter[str] = field(default_factory=Counter)
    """Errors that were answered, by name."""
    pushes: Counter[str] = field(default_factory=Counter)
    """Groups that were pushed: `reliable` and `live`."""
    redeliveries: int = 0
    """Of the reliable groups, those that were pushed again after an error, or without an answer in time."""
    traffic: Traffic = field(default_factory=Traffic)
    """Events that were added, and that were polled or pushed."""
    skipped: int = 0
    """Numbers of the log that live consumers were too slow for."""
