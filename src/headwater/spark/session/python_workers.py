"""Keeps Spark's Python workers fast: they collect garbage after each task, modules included."""

from __future__ import annotations

import gc
import os
import sys

_settled = 0
"""The number of modules at the last call."""


def settle() -> None:
    """In a reused Spark worker, exempt everything imported so far from garbage collection; elsewhere do nothing.

    Such a worker runs a full collection after each task: 50 ms for the modules of a read, as long as a small read
    takes. Modules stay as long as the process, so the collector may skip them. It also skips all
    other objects that exist at that moment: cycles among them are never collected, but they are few, and their number
    does not grow.
    """
    global _settled
    if "SPARK_REUSE_WORKER" in os.environ and len(sys.modules) != _settled:
        gc.collect()  # otherwise current garbage would stay too
        gc.freeze()
        _settled = len(sys.modules)
