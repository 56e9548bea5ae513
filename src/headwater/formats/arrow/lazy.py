"""Loads pyarrow on first use: it takes a tenth of a second and 20 MiB, and many servers never need it.

`pa` and `pc` stand for `pyarrow` and `pyarrow.compute`; accessing an attribute loads them. Code that must not wait
(such as an event loop) and has an alternative checks `arrow_is_loaded` first.
"""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any

__all__ = ["LazyModule", "arrow_is_loaded", "pa", "pc"]


class LazyModule:
    """A module that is imported on first attribute access; afterwards it is as fast as the module itself."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # introspection does not need the module
            raise AttributeError(name)
        value = getattr(importlib.import_module(self._name), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = LazyModule("pyarrow")
    pc = LazyModule("pyarrow.compute")

_loading = threading.Lock()
_has_begun = False
_is_loaded = False


def arrow_is_loaded() -> bool:
    """Whether pyarrow is loaded; if not, the first call starts a thread that loads it."""
    return _is_loaded or _begin()


def _begin() -> bool:
    global _has_begun
    with _loading:
        if not _has_begun:
            threading.Thread(target=_load, name="arrow-loading").start()
            _has_begun = True
    return _is_loaded


def _load() -> None:
    global _is_loaded
    importlib.import_module("pyarrow.compute")
    _is_loaded = True
