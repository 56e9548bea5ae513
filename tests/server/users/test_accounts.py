"""The directory of users: of many, only those that changed are read again."""

from __future__ import annotations

import pytest

from headwater.core.state import StateEntry
from headwater.server.users import accounts
from headwater.server.users.accounts import Account, AccountDirectory, encode_account
from headwater.storage import MemoryState


def test_only_changed_users_are_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    state, decoded = MemoryState(), list[str]()

    def put(name: str, grant: str) -> None:
        state.put("user", name, encode_account(Account.of_table(name, {"grants": [grant]})))

    def decode_entry(item: tuple[str, StateEntry]) -> Account:
        decoded.append(item[0])
        return _decode_entry(item)

    _decode_entry = accounts.decode_entry
    monkeypatch.setattr(accounts, "decode_entry", decode_entry)
    for number in range(100):
        put(f"u{number}", "read:*")
    directory = AccountDirectory((), state)
    assert len(directory.current().by_name) == len(decoded) == 100
    decoded.clear()
    put("u7", "append:*")
    put("new", "read:*")
    state.delete("user", "u8")
    directory.refresh()
    found = directory.current().by_name
    assert sorted(decoded) == ["new", "u7"]
    assert "u8" not in found and "new" in found and found["u7"] != found["u9"]
