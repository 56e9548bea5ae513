"""Which build of Headwater runs: pure Python, or with its hot modules as machine code of the same source."""

from __future__ import annotations

from pathlib import Path
from typing import Final

IS_COMPILED: Final = Path(__file__).suffix != ".py"
"""This module is among those that a compiled wheel has as machine code, and all of them are, or none."""
BUILD: Final = "compiled" if IS_COMPILED else "pure Python"
"""For people: `headwater --version` says it, and the metric `headwater_info`."""
