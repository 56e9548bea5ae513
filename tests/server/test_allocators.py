"""What a burst took goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from headwater.server.allocators import give_memory_back
give_memory_back()
import pyarrow as pa
print(pa.default_memory_pool().backend_name, os.environ["MALLOC_ARENA_MAX"])
"""


@pytest.mark.parametrize(("given", "told"), [({}, "system 2"), ({"MALLOC_ARENA_MAX": "9"}, "system 9")])
def test_arrow_and_its_process_share_one_allocator_unless_told_otherwise(given: dict[str, str], told: str) -> None:
    environment = {"PYTHONPATH": ":".join(sys.path), **given}
    ended = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True)
    assert ended.stdout.strip() == told
