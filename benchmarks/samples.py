"""What was measured in one go and is asked for one by one."""

from __future__ import annotations

from .measure import Sample


class Samples:
    """Kept by name, in order."""

    def __init__(self) -> None:
        self._kept: dict[str, list[Sample]] = {}

    def keep(self, name: str, sample: Sample) -> None:
        """For `take`."""
        self._kept.setdefault(name, []).append(sample)

    def take(self, name: str) -> Sample:
        """The oldest one."""
        return self._kept[name].pop(0)
