"""The mark of tests that are about the extension itself."""

from __future__ import annotations

import os

import pytest

from headwater.speedups import IS_NATIVE, VARIABLE

_WHY = "the extension is turned off" if os.environ.get(VARIABLE) else "`make setup` found no C compiler"
needs_native = pytest.mark.skipif(not IS_NATIVE, reason=_WHY)
