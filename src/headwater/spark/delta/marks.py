"""The mark in each of our entries in a Delta table's log: the digest of the resulting state.

A mark is stored in three places in an entry, so that damage to one does not make the entry look like another program's:
two keys of its `commitInfo`, and an application transaction whose version is that of the entry. That transaction is
part of the state, so checkpoints keep it: it shows which entry was our newest one.

No Spark here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

WRITER = "headwater"
"""The application transaction whose version is the version of our newest entry."""
_PROGRAMS = frozenset({"engineInfo", "clientVersion", "clusterId"})
"""Keys by which other programs identify themselves: most of them, delta-rs before 1.0, and Trino."""
_STATE, _SEAL = "headwater.state", "headwater.seal"


class DamagedEntry(ValueError):
    """An entry has changed since it was written. Its mark does not match."""


class NewerEntry(ValueError):
    """An entry is intact, but has a newer format than this version knows."""


class Mark(NamedTuple):
    """An entry's mark for the resulting state."""

    version: int
    digest: str
    transactions: Mapping[str, int]
    """Our application transactions, and their versions."""
    unproved_since: int | None
    """The version since which the state is unproved, because another program, or a version before 0.2, committed it."""

    @property
    def metadata(self) -> dict[str, Any]:
        """For the entry's `commitInfo`."""
        state = self._asdict()
        return {_STATE: state, _SEAL: _seal(state)}


def mark_in(entry: bytes) -> Mark | None:
    """The mark of an entry; None if another program wrote it. Raises DamagedEntry, NewerEntry."""
    if not any(name.encode() in entry for name in (_STATE, _SEAL)):
        return None
    actions = _actions(entry)
    told = _commit_info(actions)
    state = told.get(_STATE)
    if state is None or told.get(_SEAL) != _seal(state):
        raise DamagedEntry("its state does not match its seal")
    if set(state) != set(Mark._fields):
        raise NewerEntry
    mark = Mark(**state)
    if mark.version not in (each.get("version") for each in _transactions(actions) if each.get("appId") == WRITER):
        raise DamagedEntry(f"its transaction does not belong to version {mark.version}")
    return mark


def changes_state(entry: bytes) -> bool:
    """Whether another program's entry changes the state; a vacuum's, for example, does not.

    Raises DamagedEntry if it does not name its operation and program, because all entries do. One of our entries
    without its middle may look like that; its `commitInfo` then ends as its last line did, with the version of our
    transaction. Trino's has a version as well."""
    actions = _actions(entry)
    told = _commit_info(actions)
    is_told = "operation" in told and not _PROGRAMS.isdisjoint(told)
    if not is_told or ("version" in told and "clusterId" not in told):
        raise DamagedEntry("it does not name the program and operation")
    return any(set(action) != {"commitInfo"} for action in actions)


def _actions(entry: bytes) -> list[dict[str, Any]]:
    """The lines of an entry. Raises DamagedEntry."""
    try:
        actions = [json.loads(line) for line in entry.split(b"\n") if line]
    except ValueError:
        actions = [None]
    if not all(isinstance(action, dict) for action in actions):
        raise DamagedEntry("it is not one line of JSON per action")
    return actions


def _commit_info(actions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    told = [action["commitInfo"] for action in actions if "commitInfo" in action]
    if len(told) != 1 or not isinstance(told[0], dict):
        raise DamagedEntry("it does not name exactly one writer")
    return told[0]


def _transactions(actions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [told for action in actions if isinstance(told := action.get("txn"), dict)]


def _seal(state: object) -> str:
    return blake2b(json.dumps(state, sort_keys=True).encode(), digest_size=16).hexdigest()
