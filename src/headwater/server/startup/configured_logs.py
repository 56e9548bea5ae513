"""The logs that the configuration names: created where they are not there, with its settings imposed where they are.

A home gets them once, when it has none. Its servers may be configured differently, and what was deleted stays so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from ...core.errors import InvalidSettings, StorageCorrupted
from ...core.local import LocalLog
from ...core.settings import LogSettings, is_own
from ...core.store import LogStore
from ...formats.newer import WrittenByNewer
from ...formats.settings.declaration import InvalidConfiguration
from ...storage.home.identifier import HOME_KIND
from ..process.log_lines import fields

logger = logging.getLogger("headwater.server")

SEEDING = "seeding"
"""Where the state of a home says that not all of its first logs were created yet."""
Configured = Mapping[str, Mapping[str, object]]
"""Settings by log, as they are given; checked when they were read."""


def create_logs(store: LogStore, logs: Configured, *, only_first: bool = False) -> None:
    """Create the logs that are not there, and impose the given settings on those that are; others stay as they are.

    `only_first`: do nothing where there is a log besides the server's own.
    A log that is damaged, or was written by a newer headwater, is logged, and does not keep the server from serving the
    others.
    Raises InvalidConfiguration where a setting was fixed at creation.
    """
    present = set(store.names())
    if only_first and not all(map(is_own, present)):
        return
    for name, given in logs.items():
        try:
            if name not in present:
                store.create(name, LogSettings(**given))  # type: ignore[arg-type]  # checked when they were read
            elif given:
                _impose(store, name, given)
        except (StorageCorrupted, WrittenByNewer) as error:
            logger.error("log cannot be used", extra=fields(log=name, problem=error))


def seed_home(store: LogStore, logs: Configured) -> None:
    """Create these logs in a home that has none but the server's own. All of them: where a primary ended in the
    middle, the next one goes on, by its own configuration. Raises as `create_logs`.
    """
    state = store.state
    if logs and all(map(is_own, store.names())):
        state.put(HOME_KIND, SEEDING, b"")
    elif state.get(HOME_KIND, SEEDING) is None:
        return
    create_logs(store, logs)
    state.delete(HOME_KIND, SEEDING)


def impose(store: LogStore, log: LocalLog, settings: LogSettings) -> LocalLog:
    """Give a log the settings that are configured. If they drop events, a warning says how many.

    Raises InvalidSettings.
    """
    drop = log.foresee_drop(settings, log.consumers())
    changed = store.change(log.name, settings, drops_at_most=None)
    if drop is not None:
        facts = fields(log=log.name, events=drop.events, first=drop.first, last=drop.last, history=drop.history)
        logger.warning("configured settings drop events", extra=facts)
    return changed


def _impose(store: LogStore, name: str, given: Mapping[str, object]) -> None:
    log = store.open(name)
    wanted = replace(log.settings, **given)  # type: ignore[arg-type]
    try:
        if wanted != log.settings:
            impose(store, log, wanted)
    except InvalidSettings as error:
        raise InvalidConfiguration(error.problem, f"logs.{name}.{error.where}") from None
