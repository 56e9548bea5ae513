"""pyarrow, loaded when it is needed: it takes a tenth of a second and 20 MiB, and many servers never need it.

`pa` and `pc` stand for `pyarrow` and `pyarrow.compute`; who takes something of them loads them. What has another way,
and is not to wait (an event loop does not), asks `arrow_is_loaded` first.
"""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any

__all__ = ["LazyModule", "arrow_is_loaded", "pa", "pc"]


class LazyModule:
    """A module that is imported when something of it is asked for; from then on it is as quick as the module itself."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # who asks what this is needs no answer of the module
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
    """Whether pyarrow is there; if not, it is loaded by a thread from the first call on."""
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
