"""A home that is in another database cluster than its journal says: a person accepts that."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from ..core.errors import StorageUnavailable
from .home.identifier import record_identifier
from .home.port import Home
from .home.replicated_log import Homed
from .state.recovery import open_journaled


def accept_move(home: Home, directory: Path) -> None:
    """Enter into the journal that the home is in the cluster where it is now, and lost nothing on the way there.

    `home` has begun a term; `directory` is empty, and gets a copy of the journal.
    Raises StorageUnavailable, NotPrimary.
    """

    def refuse(problem: str) -> None:
        raise StorageUnavailable(f"{directory}: {problem}")

    with closing(open_journaled(directory, fatal=refuse, homed=Homed(home, lambda error: None))) as state:
        record_identifier(state, home)
