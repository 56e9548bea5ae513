"""Names of logs as they are given: some are patterns, which stand for several."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

_SIGNS = "*?["
"""What makes a log's name a pattern; no name may have these."""


def is_pattern(name: str) -> bool:
    """Whether it stands for several logs."""
    return any(sign in name for sign in _SIGNS)


def is_meant(log: str, names: Sequence[str]) -> bool:
    """Whether one of these names and patterns stands for that log."""
    own = log.startswith("$")  # the server's own logs are never meant by accident
    return any(fnmatch.fnmatchcase(log, name) and own == name.startswith("$") for name in names)
