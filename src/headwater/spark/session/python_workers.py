"""Keeps Spark's Python workers quick: they look through all that they hold after each task, modules and all."""

from __future__ import annotations

import gc
import os
import sys

_settled = 0
"""How many modules there were when that was done last."""


def settle() -> None:
    """In a worker that Spark uses again, leave what is imported by now to itself; elsewhere do nothing.

    Such a worker collects garbage after each task, in full: 50 ms for the modules of a read, as long as a small read
    takes. They stay for as long as the process, so the collector may pass over them. It also passes over what else the
    process holds at that moment: later cycles of that are not found, which is little, and does not grow.
    """
    global _settled
    if "SPARK_REUSE_WORKER" in os.environ and len(sys.modules) != _settled:
        gc.collect()  # else what is garbage now would stay too
        gc.freeze()
        _settled = len(sys.modules)
