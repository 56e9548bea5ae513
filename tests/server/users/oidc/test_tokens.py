"""Tokens of an issuer on the guard: which log in, as whom, with which rights, and what they cost."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from headwater.core.access import Credentials, IssuerUnavailable, Right, TooManyLogins, Unauthenticated, User
from headwater.formats.installing import how_to_install
from headwater.formats.settings.declaration import InvalidConfiguration
from headwater.server.users.accounts import Account, AccountDirectory, read_grant
from headwater.server.users.guard import AccountGuard
from headwater.server.users.oidc import tokens as tokens_module
from headwater.server.users.oidc.keys import REFRESH_S_MIN, IssuerKeys
from headwater.server.users.oidc.settings import Oidc, roles, secure_url
from headwater.server.users.oidc.tokens import REMEMBERED_S, TOKEN_BYTES_MAX, TokenLogins
from headwater.storage.memory import MemoryState
from tests.passwords import HASH, PASSWORD

from .issuer import AUDIENCE, EC_KEY, ED_KEY, RSA_KEYS, SHORT_KEY, Issuer

ALICE = Account("alice", (read_grant("all:*"),), password=HASH)


def on_a_loop(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    """The test, on an event loop of its own."""

    @wraps(test)
    def run(*given: Any, **named: Any) -> None:
        asyncio.run(test(*given, **named))

    return run


class Guarded:
    """A guard that takes the tokens of an issuer, with clocks that are moved."""

    def __init__(self, issuer: Issuer, accounts: tuple[Account, ...] = (), **settings: Any) -> None:
        self.now, self.slept = 1000.0, list[float]()
        oidc = Oidc(issuer=issuer.url, audience=AUDIENCE, **settings)
        self.tokens = TokenLogins(oidc, IssuerKeys(oidc, clock=lambda: self.now), lambda: self.now, self.wall)
        directory = AccountDirectory(accounts, MemoryState(), lambda: self.now)
        self.guard = AccountGuard(
            directory, allows_anybody=True, clock=lambda: self.now, sleep=self.sleep, tokens=self.tokens
        )
        self.passed = 0.0

    def wall(self) -> float:
        return time.time() + self.passed

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def user(self, token: str, name: str = "", peer: str = "10.0.0.1") -> User:
        return await self.guard.authenticate(Credentials(name, token), peer)

    async def outcome(self, token: str, name: str = "", peer: str = "10.0.0.1") -> str:
        try:
            return (await self.user(token, name, peer)).name
        except Unauthenticated:
            return "refused"
        except TooManyLogins:
            return "later"
        except IssuerUnavailable:
            return "issuer"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@on_a_loop
async def test_a_token_of_the_issuer_logs_in_with_the_rights_of_its_claim(issuer: Issuer) -> None:
    guarded = Guarded(issuer)
    user = await guarded.user(issuer.token())
    assert user.name == "robot"
    assert user.may(Right.APPEND, "orders-7") and not user.may(Right.READ, "salaries")
    assert not user.may(Right.MANAGE, "orders-7")


@pytest.mark.parametrize("kind", ["RS256", "PS256", "ES256", "EdDSA"])
@on_a_loop
async def test_keys_of_every_kind_sign(issuer: Issuer, kind: str) -> None:
    key = {"ES256": EC_KEY, "EdDSA": ED_KEY}.get(kind, RSA_KEYS[0])
    issuer.keys = {"k": (kind, key)}
    assert await Guarded(issuer).outcome(issuer.token("k")) == "robot"


@pytest.mark.parametrize(("own", "expected"), [("RS256", "refused"), ("PS256", "robot")])
@on_a_loop
async def test_a_key_that_names_its_algorithm_signs_by_no_other(issuer: Issuer, own: str, expected: str) -> None:
    issuer.own_algorithms["r1"] = own
    assert await Guarded(issuer).outcome(issuer.token(algorithm="PS256")) == expected


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://other.example.org"},
        {"iss": None},
        {"aud": "another-service"},
        {"aud": None},
        {"exp": int(time.time()) - 120},
        {"exp": None},
        {"exp": 1e300},
        {"exp": 10**400},
        {"exp": str(int(time.time()) + 300)},
        {"exp": True},
        {"nbf": "0"},
        {"iat": "0"},
        {"nbf": int(time.time()) + 3600},
        {"iat": int(time.time()) + 3600},
        {"sub": "a name with spaces"},
        {"sub": None},
        {"key": RSA_KEYS[1]},
        {"key": EC_KEY, "algorithm": "ES256"},
    ],
    ids=lambda changed: ",".join(changed),  # no times: each process would have others
)
@on_a_loop
async def test_tokens_that_are_not_right_are_wrong_credentials(issuer: Issuer, changed: dict[str, Any]) -> None:
    guarded = Guarded(issuer)
    assert await guarded.outcome(issuer.token(**changed)) == "refused"
    assert guarded.guard.refusals["wrong"] == 1


def encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


@on_a_loop
async def test_neither_none_nor_hmac_with_the_public_key_signs(issuer: Issuer) -> None:
    guarded = Guarded(issuer)
    claims = encoded(issuer.claims())
    assert await guarded.outcome(f"{encoded({'alg': 'none', 'kid': 'r1'})}.{claims}.") == "refused"
    public = RSA_KEYS[0].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{encoded({'alg': 'HS256', 'typ': 'JWT', 'kid': 'r1'})}.{claims}"
    code = base64.urlsafe_b64encode(hmac.digest(public, signed.encode(), hashlib.sha256)).decode().rstrip("=")
    assert await guarded.outcome(f"{signed}.{code}") == "refused"
    assert await guarded.outcome(issuer.token(algorithm="RS512")) == "refused"  # not in oidc.algorithms


@on_a_loop
async def test_a_short_key_of_the_issuer_is_not_used(issuer: Issuer) -> None:
    issuer.keys["short"] = ("RS256", SHORT_KEY)
    with pytest.warns(UserWarning, match="key"):
        token = issuer.token("short")
    assert await Guarded(issuer).outcome(token) == "refused"


@on_a_loop
async def test_what_is_too_long_or_no_token_is_not_parsed(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    import jwt

    guarded = Guarded(issuer)
    await guarded.user(issuer.token())
    nested = base64.urlsafe_b64encode(b"[" * 11_000).decode().rstrip("=")
    assert await guarded.outcome(f"eyJ{nested}.{nested[:500]}.x") == "refused"
    monkeypatch.setattr(jwt, "get_unverified_header", lambda _: pytest.fail("it was parsed"))
    assert await guarded.outcome("eyJ." + "a" * TOKEN_BYTES_MAX + ".x") == "refused"
    assert await guarded.outcome("hw_something") == "refused"


@on_a_loop
async def test_a_new_key_is_fetched_once_and_a_made_up_one_not_every_time(issuer: Issuer) -> None:
    guarded = Guarded(issuer)
    assert await guarded.outcome(issuer.token()) == "robot" and issuer.asked["/keys"] == 1
    issuer.keys = {"r2": ("RS256", RSA_KEYS[1])}
    guarded.now += REFRESH_S_MIN
    assert await guarded.outcome(issuer.token("r2")) == "robot" and issuer.asked["/keys"] == 2
    before = issuer.token("r1", key=RSA_KEYS[0], sub="other")
    outcomes = [await guarded.outcome(before, peer=f"10.0.{number}.1") for number in range(20)]
    assert outcomes == ["refused"] * 20 and issuer.asked["/keys"] == 2


@on_a_loop
async def test_logins_that_come_at_once_fetch_the_keys_once(issuer: Issuer) -> None:
    guarded = Guarded(issuer)
    logins = (guarded.outcome(issuer.token(sub=f"r{number}"), peer=f"10.1.{number}.1") for number in range(8))
    assert await asyncio.gather(*logins) == [f"r{number}" for number in range(8)]
    assert issuer.asked["/keys"] == 1


@on_a_loop
async def test_known_keys_go_on_while_the_issuer_is_down_and_unknown_ones_are_no_wrong_login(issuer: Issuer) -> None:
    guarded = Guarded(issuer, keys_age_ms=60_000)
    await guarded.user(issuer.token())
    issuer.stop()
    guarded.now += 3600.0
    assert await guarded.outcome(issuer.token(sub="another")) == "another"
    guarded.now += REFRESH_S_MIN
    for _ in range(3):
        assert await guarded.outcome(issuer.token("r2", key=RSA_KEYS[1])) == "issuer"
    assert guarded.guard.refusals == {"missing": 0, "wrong": 0, "hasty": 0, "unchecked": 3, "forbidden": 0}
    assert guarded.slept == [], "it is no failure, and nobody waits for it"


@on_a_loop
async def test_an_issuer_that_was_never_reached_is_no_wrong_login() -> None:
    with Issuer() as issuer:
        guarded, token = Guarded(issuer), issuer.token()
    assert await guarded.outcome(token) == "issuer"


@on_a_loop
async def test_a_discovery_document_of_somebody_else_is_not_believed(issuer: Issuer) -> None:
    issuer.named = "https://evil.example.org"
    assert await Guarded(issuer).outcome(issuer.token()) == "issuer"
    assert issuer.asked["/keys"] == 0


@on_a_loop
async def test_keys_are_fetched_again_when_they_are_old_and_the_login_waits_for_nothing(issuer: Issuer) -> None:
    guarded = Guarded(issuer, keys_age_ms=60_000)
    await guarded.user(issuer.token())
    guarded.now += 61.0
    await guarded.user(issuer.token(sub="other"))
    while issuer.asked["/keys"] < 2:  # in the background
        await asyncio.sleep(0.005)


@on_a_loop
async def test_a_right_token_waits_for_no_failure_of_others_and_wrong_ones_do(issuer: Issuer) -> None:
    guarded = Guarded(issuer)
    await guarded.user(issuer.token())
    for _ in range(3):
        await guarded.outcome(issuer.token(aud="x"))
    assert len(guarded.slept) == 2
    assert await guarded.outcome(issuer.token(sub="fresh")) == "fresh" and len(guarded.slept) == 2


@on_a_loop
async def test_a_signature_is_checked_once_a_minute(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    import jwt

    guarded, token, checked = Guarded(issuer), issuer.token(), list[int]()
    decode = jwt.decode
    monkeypatch.setattr(jwt, "decode", lambda *given, **named: checked.append(1) or decode(*given, **named))
    for _ in range(5):
        await guarded.user(token)
    assert guarded.guard.recall(Credentials("", token)) is not None and len(checked) == 1
    guarded.now += REMEMBERED_S
    assert guarded.guard.recall(Credentials("", token)) is None
    await guarded.user(token)
    assert len(checked) == 2


@on_a_loop
async def test_a_token_that_expires_ends_what_was_known_of_its_user(issuer: Issuer) -> None:
    guarded, token = Guarded(issuer), issuer.token(exp=int(time.time()) + 100)
    user = await guarded.user(token)
    assert user.expires_at == pytest.approx(time.time() + 130, abs=5)
    assert guarded.guard.trusted("robot", "").name == "robot" and guarded.guard.seal("robot")
    guarded.passed = 200.0
    assert guarded.guard.recall(Credentials("", token)) is None
    assert guarded.guard.seal("robot") == ""
    with pytest.raises(Unauthenticated):
        guarded.guard.trusted("robot", "")


@on_a_loop
async def test_by_name_alone_a_user_has_what_all_his_tokens_give(issuer: Issuer) -> None:
    guarded = Guarded(issuer)
    await guarded.user(issuer.token(headwater=["read:*", "append:a"]))
    await guarded.user(issuer.token(headwater=["read:*"]))
    assert guarded.guard.trusted("robot", "").grants == (read_grant("read:*"),)


@on_a_loop
async def test_a_token_is_a_password_of_its_own_user_and_no_account_s(issuer: Issuer) -> None:
    guarded = Guarded(issuer, (ALICE,))
    assert await guarded.outcome(issuer.token(), "robot") == "robot"
    assert await guarded.outcome(issuer.token(), "somebody") == "refused"
    assert await guarded.outcome(issuer.token(sub="alice"), "alice") == "refused"
    assert await guarded.outcome(issuer.token(sub="alice")) == "refused"
    assert await guarded.outcome(PASSWORD, "alice") == "alice"


@on_a_loop
async def test_with_an_issuer_nobody_is_let_in_without_credentials(issuer: Issuer) -> None:
    guarded = Guarded(issuer)
    assert not guarded.guard.is_open and guarded.guard.has_users
    with pytest.raises(Unauthenticated):
        await guarded.guard.authenticate(None, "10.0.0.1")


@pytest.mark.parametrize(
    ("settings", "claims", "grants"),
    [
        ({}, {"headwater": "read:a append:b"}, ["read:a", "append:b"]),
        ({}, {"headwater": ["openid", "nonsense:x", "read:a", 7, "read:a"]}, ["read:a"]),
        ({}, {"headwater": {"read:a": 1}}, []),
        ({"rights_claim": "realm_access.roles"}, {"realm_access": {"roles": ["read:a"]}}, ["read:a"]),
        ({"rights_claim": "https://x.y/roles"}, {"https://x.y/roles": ["read:a"]}, ["read:a"]),
        ({"rights_claim": "scope"}, {"scope": "openid read,append:orders-*"}, ["read,append:orders-*"]),
        (
            {"rights_claim": "groups", "roles": ("writers=read,append:o-*", "writers=read:p", "admins=all:*")},
            {"groups": ["writers", "all:*", "others"]},
            ["read,append:o-*", "read:p"],
        ),
    ],
)
@on_a_loop
async def test_claims_to_rights(
    issuer: Issuer, settings: dict[str, Any], claims: dict[str, Any], grants: list[str]
) -> None:
    user = await Guarded(issuer, **settings).user(issuer.token(**claims))
    assert user.grants == tuple(map(read_grant, grants))


@on_a_loop
async def test_another_claim_names_the_user(issuer: Issuer) -> None:
    assert await Guarded(issuer, user_claim="azp").outcome(issuer.token(azp="service-7", sub="auth0|x")) == "service-7"


def test_an_issuer_takes_an_audience_and_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidConfiguration, match=r"oidc.audience: missing"):
        TokenLogins(Oidc(issuer="https://id.example.org"))
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(InvalidConfiguration, match=re.escape(how_to_install("oidc"))) as refused:
        tokens_module.check_settings(Oidc(issuer="https://id.example.org", audience="x"))
    assert refused.value.where == "oidc.issuer"


@pytest.mark.parametrize("url", ["http://id.example.org", "ftp://x", "https://", "https://a:b@x/", "id.example.org", 7])
def test_keys_come_over_https_or_from_loopback(url: object) -> None:
    with pytest.raises(ValueError, match="expected a"):
        secure_url(url)
    assert secure_url("http://127.0.0.1:80/x") and secure_url("https://id.example.org/realms/a")


def test_roles_are_read_from_a_list_and_from_a_variable() -> None:
    assert roles("writers=read,append:o-*,admins=all:*") == ("writers=read,append:o-*", "admins=all:*")
    for wrong in (["writers"], ["=read:x"], ["a=fly:x"]):
        with pytest.raises(ValueError, match="expected "):
            roles(wrong)
