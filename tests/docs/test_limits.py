"""docs/reference/limits.md has each limit of a setting, and each constant that a refusal names, with its value."""

from __future__ import annotations

import re
from importlib import import_module

from headwater.core import limits
from headwater.server.config.settings import SETTINGS

from .configuration import default
from .documents import ROOT, text_of

PAGE = ROOT / "docs" / "reference" / "limits.md"
SOURCES = ROOT / "src" / "headwater"
ROOMS = ("amqp", "cne", "core", "dcb", "flight/server", "flight/wire.py", "formats/arrow", "futoin", "storage")
"""Whose refusals reach a peer of the server."""
_ROW = re.compile(r"^\| `([\w.]+)` \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
_REFUSAL = re.compile(
    r"raise (?:TooLarge|Overloaded|InvalidInput|InvalidEvent|InvalidQuery)\([^\n]*?\b([A-Z][A-Z_]*_MAX)\b"
)


def rows() -> dict[str, str]:
    """The second column by the first."""
    return {row[1]: row[2] for row in _ROW.finditer(text_of(PAGE)) if "." in row[1]}


def test_each_limit_among_the_settings_is_told_with_its_default() -> None:
    told = {key: value for key, value in rows().items() if key in SETTINGS}
    limiting = {key for key in SETTINGS if key.endswith("_max") or key.startswith(("limits.", "memory."))}
    assert told == {key: default(key, SETTINGS[key].default) for key in limiting}


def test_each_constant_is_told_with_its_value() -> None:
    told = {key: value for key, value in rows().items() if key not in SETTINGS}
    for name, value in told.items():
        module, _, constant = name.rpartition(".")
        assert (name, value) == (name, f"{getattr(import_module(f'headwater.{module}'), constant):,}")
    known = {name.rpartition(".")[2] for name in told}
    assert {name for name in vars(limits) if re.fullmatch(r"[A-Z][A-Z_]*_MAX", name)} <= known
    refusing = set()
    for room in ROOMS:
        for path in [SOURCES / room] if room.endswith(".py") else (SOURCES / room).rglob("*.py"):
            refusing |= set(_REFUSAL.findall(text_of(path)))
    assert refusing - known == set()
