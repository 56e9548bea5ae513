"""The database cluster of a home, recorded in the home's journal to detect a restore into another cluster.

A logical restore returns the home to its state at the time of the dump, and the timeline of the new cluster does not
show this. Numbers issued since the dump would be issued again. So each term begins by comparing the cluster's
identifier. If it differs, no server appends until an operator accepts it.
"""

from __future__ import annotations

from ...core.state import StateStore
from .port import Home, HomeMoved

HOME_KIND, IDENTIFIER = "home", "identifier"
"""The state entry with the identifier of the home's cluster."""


def refuse_moved(state: StateStore, home: Home) -> None:
    """Mark a home whose cluster differs from its journal's: it grants no lease until an operator accepts that.

    Raises HomeMoved, StorageUnavailable.
    """
    entry, found = state.get(HOME_KIND, IDENTIFIER), home.identifier()
    if entry is not None and entry.value.decode() != found and not home.knows_cluster():
        moved = HomeMoved(entry.value.decode(), found)
        home.mark(moved.what)
        raise moved


def record_identifier(state: StateStore, home: Home) -> None:
    """Record the identifier of the home's current cluster. Raises StorageUnavailable, NotPrimary."""
    found, entry = home.identifier().encode(), state.get(HOME_KIND, IDENTIFIER)
    if entry is None or entry.value != found:
        state.put(HOME_KIND, IDENTIFIER, found)
    home.know_cluster()
