"""Checks who may stage, commit, discard and forget in a writer's name: its owner, and users with the right to manage
the log.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...core.access import Forbidden, Right, User
from ...flight.wire import CommitBody, WriterBody
from ...storage.staging import owners

Authorize = Callable[[User, Right, str], None]


def owner_for(directory: Path, user: User, body: WriterBody) -> str | None:
    """The owner of the writer in an action; a commit claims an unowned name."""
    if isinstance(body, CommitBody):
        return owners.claim(directory, body.writer, user.name)
    return owners.owner_of(directory, body.writer)


def check_own(owner: str | None, user: User, log: str, authorize: Authorize) -> None:
    """Raises Forbidden if the writer belongs to another user, and this one may not manage the log."""
    if owner in (None, user.name):
        return
    try:
        authorize(user, Right.MANAGE, log)
    except Forbidden:
        why = "which is required because the writer's name belongs to another user"
        raise Forbidden(user.name, Right.MANAGE, log, why) from None
