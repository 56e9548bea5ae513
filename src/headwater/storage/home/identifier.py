"""The database cluster that a home is in, as its journal records it. A restore into another cluster is noticed by that.

A logical restore brings back the home as it was when it was dumped, and the timeline of the new cluster does not show
that. Numbers that were given since the dump would be given again. So each term begins with a comparison of the
cluster's identifier. If it is another one, no server appends until a person accepts it.
"""

from __future__ import annotations

from ...core.state import StateStore
from .port import Home, HomeMoved

HOME_KIND, IDENTIFIER = "home", "identifier"
"""The entry of the state that has the identifier of the home's cluster."""


def refuse_moved(state: StateStore, home: Home) -> None:
    """Mark a home that is in another cluster than its journal says: it gives no lease until a person accepts that.

    Raises HomeMoved, StorageUnavailable.
    """
    entry, found = state.get(HOME_KIND, IDENTIFIER), home.identifier()
    if entry is not None and entry.value.decode() != found and not home.knows_cluster():
        moved = HomeMoved(entry.value.decode(), found)
        home.mark(moved.what)
        raise moved


def record_identifier(state: StateStore, home: Home) -> None:
    """Record the identifier of the cluster that the home is in now. Raises StorageUnavailable, NotPrimary."""
    found, entry = home.identifier().encode(), state.get(HOME_KIND, IDENTIFIER)
    if entry is None or entry.value != found:
        state.put(HOME_KIND, IDENTIFIER, found)
    home.know_cluster()
