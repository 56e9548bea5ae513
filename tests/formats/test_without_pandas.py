"""Opening a log never loads pandas, though it is installed: that takes half a second and 25 MB."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from headwater.core import Event
from headwater.formats.arrow.columns import array_of, numbers_of
from headwater.storage import Engine

OPENING = """
import sys
from headwater.storage import Engine
from headwater.storage.read.mapped_log import MappedLog

with Engine(sys.argv[1]) as engine:
    log = engine.open("orders")
    assert log.head() == 4000 and log.index.actives[-1].last == 4000
    mapped = MappedLog(log.directory)
    mapped.refresh(log.head())
    assert sum(batch.num_rows for batch in mapped.scan(0, log.head())) == 4000
assert "pyarrow" in sys.modules and "pandas" not in sys.modules
"""


def test_a_log_that_was_killed_is_opened_without_pandas(tmp_path: Path) -> None:
    with Engine(tmp_path / "data", maintains=False) as engine:
        log = engine.create("orders")
        for start in (0, 2000):
            log.append(
                [Event(f"T{n % 7}", b"x", (f"b:{n % 5}", f"a:{n}"), id=str(n)) for n in range(start, start + 2000)]
            )
        subprocess.run(["cp", "-r", tmp_path / "data", tmp_path / "killed"], check=True)
    subprocess.run([sys.executable, "-c", OPENING, tmp_path / "killed"], check=True)


def test_numbers_and_truths_go_both_ways() -> None:
    for kind in ("u1", "i4", "u4", "i8", "u8", "?"):
        given = np.array([0, 1, 1, 0, 1], kind)
        made = array_of(given)
        assert made.equals(pa.array(given)) and (numbers_of(made) == given).all()
        assert numbers_of(made.slice(1, 3)).tolist() == given[1:4].tolist()
        assert numbers_of(made.slice(5)).tolist() == []
    assert array_of(np.arange(10)[::3]).to_pylist() == [0, 3, 6, 9]
