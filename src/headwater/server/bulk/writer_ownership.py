"""Who may stage, commit, discard and forget under the name of a writer: its owner, and who manages the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...core.access import Forbidden, Right, User
from ...flight.wire import CommitBody, WriterBody
from ...storage.staging import owners

Authorize = Callable[[User, Right, str], None]


def owner_for(directory: Path, user: User, body: WriterBody) -> str | None:
    """Whose the writer that an action names is; a commit claims a name that nobody has."""
    if isinstance(body, CommitBody):
        return owners.claim(directory, body.writer, user.name)
    return owners.owner_of(directory, body.writer)


def check_own(owner: str | None, user: User, log: str, authorize: Authorize) -> None:
    """Raises Forbidden where the writer is another user's, and this one may not manage the log."""
    if owner in (None, user.name):
        return
    try:
        authorize(user, Right.MANAGE, log)
    except Forbidden:
        why = "which is needed for the name of a writer that another user began to use"
        raise Forbidden(user.name, Right.MANAGE, log, why) from None
