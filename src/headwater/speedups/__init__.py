"""What an install does in C if it was built with a C compiler: one extension module, `_native`.

Each function of it has a twin in Python, in the room that uses both. The twin gives the same results, and alone
reports errors. Only the thread that writes for an event loop has none: see `storage.disk.background_writer`.
`HEADWATER_NO_EXTENSIONS=1` in the environment chooses the twins.
"""

from __future__ import annotations

import importlib
import os
from typing import Final

from .sources import digest, sources

VARIABLE: Final = "HEADWATER_NO_EXTENSIONS"
"""Any value but the empty one and 0 turns the extension off, for this process."""


class StaleLibrary(ImportError):
    """The library was compiled from other C files than those beside it."""


def _is_native() -> bool:
    """Whether the extension is used. Raises StaleLibrary, and ImportError where it is there and cannot be loaded."""
    if os.environ.get(VARIABLE, "") not in ("", "0"):
        return False
    name = f"{__name__}._native"
    try:
        native = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return False
    if (beside := sources()) and digest(beside) != native.DIGEST:
        raise StaleLibrary(
            f"{native.__file__} was compiled from different C files: run `make setup`, or set "
            f"{VARIABLE}=1 to run without it",
            name=name,
            path=native.__file__,
        )
    return True


IS_NATIVE: Final = _is_native()
"""Decided once, when a process starts."""
BUILD: Final = "with speedups" if IS_NATIVE else "pure Python"
"""For people: `headwater --version` says it, the log when the server starts, and the metric `headwater_info`."""
