"""A warning at the start for each setting that allows more than the budget of memory has room for."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from ...core.loop.memory import MemoryAccount
from ...core.settings import LogSettings
from ...formats.settings.declaration import show_bytes
from ...http.body_memory import largest_within, memory_of
from ..config.settings import Config
from ..process.log_lines import fields

DEFAULTS = LogSettings()
logger = logging.getLogger("headwater.server.memory")


def warn_of_misfits(config: Config, memory: MemoryAccount) -> None:
    """Log a warning for each setting that allows more than `memory.peers` has room for."""
    for setting, allowed, largest in misfits(config, memory):
        logger.warning(
            "a setting allows more than memory.peers has room for",
            extra=fields(
                setting=setting, allowed=show_bytes(allowed), fits=largest, budget=show_bytes(memory.bytes_max)
            ),
        )


def misfits(config: Config, memory: MemoryAccount) -> Iterator[tuple[str, int, int]]:
    """The settings, what each allows, and the bytes that can be taken instead."""
    largest = largest_within(memory.largest)
    for setting, allowed in (("http.body_bytes_max", config.http.body_bytes_max), *_events(config.logs)):
        if memory_of(allowed) > memory.largest:
            yield setting, allowed, largest


def _events(logs: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str, int]]:
    for name, given in logs.items():
        size = given.get("event_bytes_max", DEFAULTS.event_bytes_max)
        assert isinstance(size, int), "a reader made it"
        yield f"logs.{name}.event_bytes_max", size
