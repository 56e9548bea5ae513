"""Files written by a newer headwater: they are not damaged; this version neither reads nor changes them."""

from __future__ import annotations

from pathlib import Path

from ..core.errors import StorageUnavailable


class WrittenByNewer(StorageUnavailable):
    """The data is intact, but in a format that only a newer headwater knows."""

    def __init__(self, what: Path | str, form: str) -> None:
        """`what` names the data (usually by a path); `form` names its unknown format (`format 4`)."""
        self.form = form
        super().__init__(
            f"{what} was written by a newer headwater ({form}); use a newer headwater",
            reason="it was written by a newer headwater than this one",
        )
