"""The mark in each entry that we write to a Delta table's log: the digest of the state that the entry makes.

A mark is in three places of an entry, so that damage in one does not make it look like the entry of another program:
two keys of its `commitInfo`, and an application transaction whose version is the entry's own. That transaction is part
of the state, so that checkpoints keep it: it says which entry was the newest one of ours.

No Spark here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

WRITER = "headwater"
"""The application transaction whose version is that of the newest entry of ours."""
_PROGRAMS = frozenset({"engineInfo", "clientVersion", "clusterId"})
"""Where other programs say who they are: most of them, delta-rs before 1.0, and Trino."""
_STATE, _SEAL = "headwater.state", "headwater.seal"


class DamagedEntry(ValueError):
    """An entry is not as it was written."""


class NewerEntry(ValueError):
    """An entry is as it was written, and says more than this version knows."""


class Mark(NamedTuple):
    """What an entry says of the state that it makes."""

    version: int
    digest: str
    transactions: Mapping[str, int]
    """The application transactions of ours, and their versions."""
    unproved_since: int | None
    """The version since which nothing proves the state: another program, or a version before 0.2, made it."""

    @property
    def metadata(self) -> dict[str, Any]:
        """For the entry's `commitInfo`."""
        state = self._asdict()
        return {_STATE: state, _SEAL: _seal(state)}


def mark_in(entry: bytes) -> Mark | None:
    """The mark of an entry; None in one of another program. Raises DamagedEntry, NewerEntry."""
    if not any(name.encode() in entry for name in (_STATE, _SEAL)):
        return None
    told = _commit_info(entry)
    state = told.get(_STATE)
    if state is None or told.get(_SEAL) != _seal(state):
        raise DamagedEntry("what it says of its state does not match its seal")
    if set(state) != set(Mark._fields):
        raise NewerEntry
    return Mark(**state)


def changes_state(entry: bytes) -> bool:
    """Whether an entry of another program makes another state; that of a vacuum, say, does not.

    Raises DamagedEntry where it does not say what which program did: all do. One of ours that lacks its middle may look
    like that; its `commitInfo` then ends as its last line did, with the version of our transaction. Trino's has a
    version as well.
    """
    told = _commit_info(entry)
    is_told = "operation" in told and not _PROGRAMS.isdisjoint(told)
    if not is_told or ("version" in told and "clusterId" not in told):
        raise DamagedEntry("it does not say what which program did")
    return any(set(json.loads(line)) != {"commitInfo"} for line in entry.split(b"\n") if line)


def _commit_info(entry: bytes) -> dict[str, Any]:
    try:
        actions = [json.loads(line) for line in entry.split(b"\n") if line]
        (told,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
    except (ValueError, TypeError):
        raise DamagedEntry("it does not say in JSON, just once, who wrote it") from None
    if not isinstance(told, dict):
        raise DamagedEntry("what it says of its writer is no object")
    return told


def _seal(state: object) -> str:
    return blake2b(json.dumps(state, sort_keys=True).encode(), digest_size=16).hexdigest()
