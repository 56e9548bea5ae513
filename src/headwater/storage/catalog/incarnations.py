"""New incarnations, for logs whose newest events may be lost, so that the issued numbers are unknown.

Their numbers continue far above, so that none is issued twice. Positions of lost events are refused as positions of
another incarnation. Consumers, readers and marks move to the new one.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from pathlib import Path

from ...core.state import StateStore, kinds_of_log
from ..home.identifier import HOME_KIND, record_identifier
from ..home.port import Home
from ..segments.meta import Meta
from .directories import EVERY_LOG, FLOOR_KIND, LOGS, beyond, known_logs
from .identity import meta_of, record_identity

logger = logging.getLogger("headwater.storage")

LOSSES = "losses"
"""The state entry with the number of a home's losses after which its logs were renewed."""


def renew(state: StateStore, directory: Path, meta: Meta, head: int) -> None:
    """Turn a log that ends with `head` into a new incarnation. Repeat it after an interruption."""
    incarnation = uuid.uuid4().hex
    pairs = list(zip(kinds_of_log(meta.incarnation), kinds_of_log(incarnation), strict=True))
    for old, new in pairs:
        for key, entry in list(state.items(old)):
            state.put(new, key, entry.value)
    void = (head + 1, beyond(max(head, meta.floor)))
    renewed = meta.changed(incarnation=incarnation, voids=[*meta.voids, void], clean=None)
    record_identity(state, directory, renewed)
    renewed.write(directory)
    for old, _ in pairs:
        for key, _ in list(state.items(old)):
            state.delete(old, key)


def renew_floors(state: StateStore, highest: int) -> None:
    """Make future logs begin above all numbers that may have been issued.

    `highest`: the highest number of existing logs.
    """
    for name, entry in list(state.items(FLOOR_KIND)):
        highest = max(highest, int(entry.value))
        state.put(FLOOR_KIND, name, str(beyond(int(entry.value))).encode())
    state.put(FLOOR_KIND, EVERY_LOG, str(beyond(highest)).encode())


def losses_to_heed(state: StateStore, home: Home) -> int | None:
    """The number of losses of the home that an operator accepted, if the logs must be renewed for it; else None.

    Raises StorageUnavailable.
    """
    losses = home.losses()
    return None if losses == losses_heeded(state) else losses


def losses_heeded(state: StateStore) -> int:
    """The number of times that the logs of this state were renewed because an operator accepted a loss."""
    entry = state.get(HOME_KIND, LOSSES)
    return 0 if entry is None else int(entry.value)


def renew_after_loss(directory: Path, state: StateStore, home: Home, losses: int, heads: Mapping[str, int]) -> None:
    """Renew all logs of a home, which end with these numbers; none of them is open.

    The state records completion last, so after an interruption it begins again. Raises StorageUnavailable, NotPrimary.
    """
    for name, log in known_logs(state).items():
        path = directory / LOGS / log.directory
        meta = meta_of(state, path)
        home.skip(meta.segments_id, beyond(max(heads[name], meta.floor)))  # first: see `ReplicatedLog.follow`
        renew(state, path, meta, heads[name])
        logger.warning("log %s is a new incarnation: events after %d may be lost, as accepted", name, heads[name])
    renew_floors(state, max(heads.values(), default=0))
    record_identifier(state, home)
    state.put(HOME_KIND, LOSSES, b"%d" % losses)
