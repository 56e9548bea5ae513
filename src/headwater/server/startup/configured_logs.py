"""The configured logs: missing ones are created; existing ones get the configured settings.

In a home, they are created once, when it contains no logs. Its servers may have different configurations, and deleted
logs stay deleted.
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
"""The key in a home's state while not all of its first logs are created."""
Configured = Mapping[str, Mapping[str, object]]
"""The given settings by log, checked when they were read."""


def create_logs(store: LogStore, logs: Configured, *, only_first: bool = False) -> None:
    """Create missing logs, and apply the given settings to existing ones; other logs stay as they are.

    `only_first`: do nothing if any log other than the server's own exists.
    A log that is damaged, or was written by a newer version, is reported in the server's log, and the server serves the
    others.
    Raises InvalidConfiguration if a given setting was fixed at creation.
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
            logger.error("cannot use the log", extra=fields(log=name, problem=error))


def seed_home(store: LogStore, logs: Configured) -> None:
    """Create these logs in a home that contains only the server's own logs. If a primary ends before all are created,
    the next one continues with its own configuration. Raises the same errors as `create_logs`.
    """
    state = store.state
    if logs and all(map(is_own, store.names())):
        state.put(HOME_KIND, SEEDING, b"")
    elif state.get(HOME_KIND, SEEDING) is None:
        return
    create_logs(store, logs)
    state.delete(HOME_KIND, SEEDING)


def impose(store: LogStore, log: LocalLog, settings: LogSettings) -> LocalLog:
    """Apply the configured settings to a log. If this drops events, their number is logged as a warning.

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
