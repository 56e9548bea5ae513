"""Whose the bytes of a connection are."""

from __future__ import annotations

from headwater.core.access import Grant, Right, User
from headwater.core.loop.memory import MemoryAccount, Share
from headwater.core.shared_bytes import MIB
from headwater.http.host import own

READER = User("alice", (Grant("*", frozenset({Right.READ})),))
ADMINISTRATOR = User("alice", (Grant("*", frozenset({Right.READ, Right.MANAGE})),))


def test_what_is_kept_for_administrators_is_theirs_as_long_as_they_are() -> None:
    account = MemoryAccount(16 * MIB)
    share, other = Share(account), Share(account)
    for user in (READER, ADMINISTRATOR, READER, ADMINISTRATOR):
        own(share, user)
        own(other, user)
        assert share.owner is other.owner
        assert share.owner is not None and share.owner.is_administrator == (user is ADMINISTRATOR)
        assert (account.room(share.owner) == account.free) == (user is ADMINISTRATOR)
    other.close()
    share.close()
    assert account.owner("alice").shares == 0
