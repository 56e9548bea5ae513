"""Modules that are loaded when they are needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headwater.formats.arrow import lazy
from tests.waiting import eventually


def test_it_is_imported_when_something_of_it_is_asked_for() -> None:
    program = """
import sys
from headwater.formats.arrow import columns as arrow_columns, lazy as late
from headwater.storage.frames import frame, encoding as frame_encoding
assert "pyarrow" not in sys.modules
assert len(late.pa.array([1, 2])) == 2
assert "pyarrow" in sys.modules
assert late.pa.array is sys.modules["pyarrow"].array
assert late.pc.sum([1, 2]).as_py() == 3
assert arrow_columns.EVENT_SCHEMA.names[0] == "type"
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_it_lacks_is_told_by_its_name() -> None:
    with pytest.raises(AttributeError, match="pyarrow"):
        _ = lazy.pa.no_such_thing


def test_who_does_not_want_to_wait_is_told_when_it_is_there() -> None:
    lazy.arrow_is_loaded()
    eventually(lazy.arrow_is_loaded)
