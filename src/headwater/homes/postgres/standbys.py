"""Finds the standbys that commits of a home in PostgreSQL wait for although they are not connected."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .lease import STANDBY_NAME, WAITED_FOR

if TYPE_CHECKING:
    from .connections import Connection

_STANDBYS = f"""
SELECT {WAITED_FOR}, array(
    SELECT lower(application_name) FROM pg_stat_replication WHERE coalesce(state, 'streaming') = 'streaming'
)
"""
"""Only members of pg_read_all_stats see the state of a standby."""
_LIST = re.compile(r"(?:(?:any|first)\s+)?([0-9]+)\s*\((.*)\)", re.IGNORECASE | re.ASCII | re.DOTALL)
_NAMES = re.compile(rf"{STANDBY_NAME}|\*", re.ASCII)


def missing_standbys(connection: Connection) -> str | None:
    """Why commits wait for standbys that are not connected, and the remedy; None if they do not. Raises psycopg.Error.

    This reads only, so it is answered while commits wait.
    """
    [[configured, connected]] = connection.execute(_STANDBYS).fetchall()
    return missing(configured, connected)


def missing(configured: str, connected: Sequence[str]) -> str | None:
    """The same, for a value of `synchronous_standby_names` and the names of the connected standbys in lower case."""
    parts = _LIST.fullmatch(configured.strip())
    needed, names = (int(parts[1]), parts[2]) if parts else (1, configured)
    wanted = [_plain(each) for each in _NAMES.findall(names)]
    if not wanted:
        return None
    if "*" in wanted:
        wanted, there = ["*"], len(connected)
    else:
        there = sum(each in wanted for each in connected)
    if there >= needed:
        return None
    absent = " and ".join(each for each in wanted if each not in connected)
    which = "any standby" if absent == "*" else f"the standby {absent}"
    return (
        f"commits wait for {which}, which is not connected or has not caught up: start it, or remove it from "
        f"synchronous_standby_names (now {configured!r})"
    )


def _plain(name: str) -> str:
    return (name[1:-1].replace('""', '"') if name.startswith('"') else name).lower()
