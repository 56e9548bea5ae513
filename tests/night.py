"""What is proved in short by day and in full by night.

`make check` and `make test` run by day; with `NIGHT=1` in the environment, as `make nightly` sets it, all tests run, at
full length. Nothing is proved at night alone that a change of one line breaks by day: what leaves the day keeps a short
form there.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

IS_NIGHT: Final = os.environ.get("NIGHT") == "1"
"""For counts of rounds and for lists of cases: `KILLS = 5 if IS_NIGHT else 1`."""
night = pytest.mark.night
"""For a test, a case (`pytest.param(..., marks=night)`) or a module (`pytestmark = night`) that runs by night alone."""
