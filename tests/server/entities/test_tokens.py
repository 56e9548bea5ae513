"""Tokens made by management: told once, with an end, listed by their labels, taken away."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.core.access import Credentials, Forbidden, Right, Unauthenticated, User
from headwater.core.errors import InvalidInput
from headwater.management.entities import TYPES
from headwater.management.statuses import OperationRefused, Status
from headwater.server.entities.tokens import TOKENS_MAX, Tokens
from headwater.server.entities.users import Users
from headwater.server.users.accounts import (
    KIND,
    Account,
    AccountDirectory,
    decode_entry,
    encode_account,
    hash_token,
    read_grant,
)
from headwater.server.users.guard import AccountGuard
from headwater.storage.memory import MemoryState

from ..running import RunningServer, headwater
from .test_readers import ask

ROOT = User("root", (read_grant("all:*"),))
HOUR_MS = 3_600_000


class Kept:
    """A guard, users and tokens on one state; time stands still."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.state = MemoryState()
        self.put(Account("root", ROOT.grants, tokens=(hash_token("of root"),)))
        self.put(Account("alice", (read_grant("read:orders"),)))
        configured = Account("bob", (read_grant("read:*"),), tokens=(hash_token("of bob"),))
        self.directory = AccountDirectory([configured], self.state, clock=lambda: self.now_ms / 1000)
        wall = lambda: self.now_ms / 1000  # noqa: E731 - shared by both
        self.guard = AccountGuard(self.directory, allows_anybody=False, wall_clock=wall)
        self.tokens = Tokens(Users(self.guard, self.state), lambda: self.now_ms)

    def put(self, account: Account) -> None:
        self.state.put(KIND, account.name, encode_account(account), 0)

    async def login(self, secret: str) -> User:
        return await self.guard.authenticate(Credentials("", secret), "10.0.0.1")


@pytest.fixture
def kept() -> Kept:
    return Kept()


def run(work: Any) -> Any:
    import asyncio

    return asyncio.run(work)


def test_a_token_is_told_once_and_only_its_hash_is_kept(kept: Kept) -> None:
    async def scenario() -> None:
        made = await kept.tokens.create(ROOT, "alice/ci", {})
        assert re.fullmatch(r"hw_[A-Za-z0-9_-]{43}", made["secret"])
        assert (made["user"], made["label"], made["lifetimeMs"], made["expiresAt"]) == ("alice", "ci", None, None)
        assert "secret" not in await kept.tokens.read(ROOT, "alice/ci")
        entry = kept.state.get(KIND, "alice")
        assert entry is not None and made["secret"].encode() not in entry.value
        assert hash_token(made["secret"]).encode() in entry.value
        user = await kept.login(made["secret"])
        assert (user.name, user.may(Right.READ, "orders"), user.expires_at) == ("alice", True, None)
        kept.now_ms += 2000  # read anew from what is stored
        assert (await kept.login(made["secret"])).name == "alice"

    run(scenario())


def test_a_token_ends_when_it_says_and_so_do_logins_by_it(kept: Kept) -> None:
    async def scenario() -> None:
        made = await kept.tokens.create(ROOT, "alice/ci", {"lifetimeMs": HOUR_MS})
        user = await kept.login(made["secret"])
        assert user.expires_at == (1_000_000 + HOUR_MS) / 1000
        assert (made["lifetimeMs"], made["expiresAt"], made["isOver"]) == (HOUR_MS, 1_000_000 + HOUR_MS, False)
        kept.now_ms += HOUR_MS - 1
        assert (await kept.login(made["secret"])).name == "alice"
        kept.now_ms += 1
        with pytest.raises(Unauthenticated):
            await kept.login(made["secret"])
        assert (await kept.tokens.read(ROOT, "alice/ci"))["isOver"] is True
        await kept.tokens.create(ROOT, "alice/next", {})
        assert await kept.tokens.names(ROOT) == ["alice/next", *await unnamed(kept)]

    run(scenario())


async def unnamed(kept: Kept) -> list[str]:
    return [name for name in await kept.tokens.names(ROOT) if "/unnamed-" in name]


def test_a_new_token_ends_no_login_and_one_that_is_taken_away_ends_those_of_its_user(kept: Kept) -> None:
    async def scenario() -> None:
        seals = {name: kept.guard.seal(name) for name in ("alice", "root")}
        first = await kept.tokens.create(ROOT, "alice/first", {})
        second = await kept.tokens.create(ROOT, "alice/second", {})
        assert {name: kept.guard.seal(name) for name in seals} == seals
        await kept.tokens.delete(ROOT, "alice/first")
        assert kept.guard.seal("alice") != seals["alice"] and kept.guard.seal("root") == seals["root"]
        with pytest.raises(Unauthenticated):
            await kept.login(first["secret"])
        assert (await kept.login(second["secret"])).name == "alice"
        with pytest.raises(OperationRefused) as refused:
            await kept.tokens.delete(ROOT, "alice/first")
        assert refused.value.status is Status.NOT_FOUND
        sealed = kept.guard.seal("alice")
        await kept.tokens.delete(ROOT, "alice/second")
        await kept.tokens.create(ROOT, "alice/first", {})
        assert kept.guard.seal("alice") not in (sealed, seals["alice"])

    run(scenario())


def test_tokens_without_a_label_are_listed_and_can_be_taken_away(kept: Kept) -> None:
    async def scenario() -> None:
        of_bob, of_root = await unnamed(kept)
        assert of_bob.startswith("bob/") and of_root.startswith("root/")
        assert (await kept.tokens.read(ROOT, of_bob))["origin"] == "configuration"
        with pytest.raises(OperationRefused) as refused:
            await kept.tokens.delete(ROOT, of_bob)
        assert refused.value.status is Status.CONFLICT
        with pytest.raises(OperationRefused):
            await kept.tokens.create(ROOT, "bob/ci", {})
        assert (await kept.login("of root")).name == "root"
        await kept.tokens.delete(ROOT, of_root)
        with pytest.raises(Unauthenticated):
            await kept.login("of root")

    run(scenario())


@pytest.mark.parametrize("label", ["", "-x", "x" * 65, "a b", "a\n", "unnamed-1", "é", "../x"])
def test_labels_are_checked(kept: Kept, label: str) -> None:
    with pytest.raises((InvalidInput, OperationRefused)):
        run(kept.tokens.create(ROOT, f"alice/{label}", {}))


@pytest.mark.parametrize("lifetime_ms", [0, -1, 999, 2**62])
def test_lifetimes_are_checked(kept: Kept, lifetime_ms: int) -> None:
    with pytest.raises(InvalidInput, match="lifetimeMs"):
        run(kept.tokens.create(ROOT, "alice/ci", {"lifetimeMs": lifetime_ms}))


@pytest.mark.parametrize("name", ["", "alice", "alice/a/b", "nobody/ci", "/ci"])
def test_names_are_checked(kept: Kept, name: str) -> None:
    with pytest.raises(OperationRefused) as refused:
        run(kept.tokens.create(ROOT, name, {}))
    assert refused.value.status is Status.NOT_FOUND


def test_a_user_has_so_many_tokens_each_under_a_label_of_its_own(kept: Kept) -> None:
    async def scenario() -> None:
        for number in range(TOKENS_MAX):
            await kept.tokens.create(ROOT, f"alice/n{number}", {})
        for label in ("n1", "more"):
            with pytest.raises(OperationRefused) as refused:
                await kept.tokens.create(ROOT, f"alice/{label}", {})
            assert refused.value.status is Status.CONFLICT

    run(scenario())


def test_who_may_not_manage_the_server_sees_and_makes_none(kept: Kept) -> None:
    alice = User("alice", (read_grant("all:orders"),))
    assert run(kept.tokens.names(alice)) == []
    for work in (kept.tokens.read, kept.tokens.delete):
        with pytest.raises(Forbidden):
            run(work(alice, "alice/ci"))
    with pytest.raises(Forbidden):
        run(kept.tokens.create(alice, "alice/ci", {}))


def test_what_is_kept_of_an_account_comes_back_as_it_was(kept: Kept) -> None:
    run(kept.tokens.create(ROOT, "alice/ci", {"lifetimeMs": HOUR_MS}))
    entry = kept.state.get(KIND, "alice")
    assert entry is not None
    account = decode_entry(("alice", entry))
    assert encode_account(account) == entry.value and account.access_tokens[0].label == "ci"
    assert json.loads(encode_account(Account("x", ()))) == {"grants": []}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    directory: Path = tmp_path_factory.mktemp("tokens")
    for name, grant in (("root", "all:*"), ("alice", "read:*")):
        made = headwater(
            "user",
            "add",
            name,
            "--grant",
            grant,
            "--password-stdin",
            "--data",
            "data",
            cwd=directory,
            stdin="correct horse\n",
        )
        assert made.returncode == 0, made.stderr
    with RunningServer("--data", "data", "--log", "orders", cwd=directory) as running:
        yield running


def test_a_program_logs_in_by_a_token_until_it_is_taken_away(server: RunningServer) -> None:
    status, made = ask(server, "PUT", "/management/token/alice%2Fci", {"lifetimeMs": HOUR_MS})
    assert status == 201, made
    assert list(made) == TYPES["io.headwater.token"].attribute_names
    bearer = {"authorization": f"Bearer {made['secret']}"}
    assert server.ask("/logs/orders", headers=bearer)[0] == 200
    assert ask(server, "GET", "/management/token/alice%2Fci")[1] == {**made, "secret": None}
    assert ask(server, "GET", "/management/user/alice")[1]["tokens"] == 1
    assert ask(server, "PUT", "/management/token/alice%2Fci", {})[0] == 409
    assert ask(server, "PUT", "/management/token/alice%2Fx", {"lifetimeMs": "soon"})[0] == 400
    assert ask(server, "PUT", "/management/token/alice%2Fx", {"secret": "mine"})[0] == 400
    assert ask(server, "PUT", "/management/token/root%2Fx", {}, user="alice")[0] == 403
    assert ask(server, "DELETE", "/management/token/alice%2Fci")[0] == 204
    assert server.ask("/logs/orders", headers=bearer)[0] == 401
    assert made["secret"] not in server.errors
