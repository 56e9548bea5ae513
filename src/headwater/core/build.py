"""Which build of Headwater runs: with `storage/frames/_pick.c` as an extension module, or pure Python."""

from __future__ import annotations

from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

HAS_PICK: Final = (
    PathFinder.find_spec("headwater.storage.frames._pick", [str(Path(__file__).parents[1] / "storage" / "frames")])
    is not None
)
"""An extension module for this Python is there. It is only looked for: the core does not import storage."""
BUILD: Final = "with _pick" if HAS_PICK else "pure Python"
"""For people: `headwater --version` says it, and the metric `headwater_info`."""
