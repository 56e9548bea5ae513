"""Who may stage, commit and discard under the name of an exactly-once writer: whose it is, and who manages the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...core.access import Forbidden, Right, User
from ...core.local import LocalLog
from ...core.mark import BATCH_MAX
from ...flight.wire import CommitBody, DiscardBody
from ...storage.staging import owners

Authorize = Callable[[User, Right, str], None]


def owner_for(directory: Path, user: User, body: CommitBody | DiscardBody) -> str | None:
    """Whose the writer of a commit, or of what is to be discarded, is; a commit claims a name that nobody has."""
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


def is_ended(log: LocalLog, body: CommitBody | DiscardBody) -> bool:
    """Whether the name is free again: nothing can follow that commit, or there was nothing but what was discarded."""
    return body.batch == BATCH_MAX if isinstance(body, CommitBody) else log.writer(body.writer) is None
