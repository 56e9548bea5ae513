"""Tokens of an issuer (JWT, RFC 7519) as logins: signatures, times, and the rights in their claims.

A token's size is checked before it is parsed, its algorithm must be on a list, and its key is the issuer's. Checking a
signature takes about 0.1 ms, so it runs on the event loop; the result is remembered for a minute.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ....core.access import Credentials, Grant, User
from ....core.errors import InvalidInput
from ....core.quoting import cut
from ....formats.installing import how_to_install
from ....formats.settings.declaration import InvalidConfiguration
from ...process.log_lines import fields
from ..accounts import USER_NAME, read_grant
from .keys import IssuerKeys
from .settings import Oidc, roles_of

logger = logging.getLogger("headwater.security")

TOKEN_BYTES_MAX = 16 * 1024
"""Longer tokens are refused unread."""
REMEMBERED_S = 60.0
"""How long a signature check is remembered: a key that the issuer drops is valid no longer than that."""
REMEMBERED_MAX = 10_000
EXPIRES_AT_MAX = 2.0**36
"""In the year 4147: a time in milliseconds is refused, instead of never expiring."""
DATES = frozenset({"exp", "nbf", "iat"})
"""Claims that are times: numbers, never strings of digits."""
VALUES_MAX = 200
"""Roles or grants of one token; more are ignored."""


class KeyUnknown(Exception):
    """The token names a key that was not among the issuer's last fetched keys."""


class WrongToken(Exception):
    """The token is refused; the message gives the operator the reason."""


@dataclass(slots=True)
class _Shown:
    user: User
    checked_at: float


class TokenLogins:
    """Authenticates by tokens of the issuer. For one event loop."""

    def __init__(
        self,
        settings: Oidc,
        keys: IssuerKeys | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Raises InvalidConfiguration if there is no audience, or the extra is not installed."""
        check_settings(settings)
        self.keys = keys or IssuerKeys(settings)
        self._settings, self._clock, self._wall_clock = settings, clock, wall_clock
        self._roles = roles_of(settings.roles)
        self._shown: OrderedDict[bytes, _Shown] = OrderedDict()
        self._of_name: dict[str, set[bytes]] = {}

    def concern(self, credentials: Credentials, names: Collection[str]) -> bool:
        """Whether the credentials are such a token: as a bearer token, or as the password of its user.

        `names` are the names of accounts, which have their own passwords.
        """
        secret = credentials.secret
        return secret.startswith("eyJ") and secret.count(".") == 2 and credentials.name not in names

    def recall(self, credentials: Credentials) -> User | None:
        """The user of a token whose signature was checked recently."""
        shown = self._shown.get(_digest(credentials.secret))
        if shown is None or self._clock() - shown.checked_at >= REMEMBERED_S:
            return None
        return shown.user if self._holds(shown.user) and credentials.name in ("", shown.user.name) else None

    def check(self, credentials: Credentials, names: Collection[str]) -> User | None:
        """The user of the token; None if it is refused, which is logged. Raises KeyUnknown."""
        try:
            user = self._user(self._claims(credentials.secret))
            if user.name in names:
                raise WrongToken(f"user {user.name} has an account here and must log in with it")
            if credentials.name not in ("", user.name):
                raise WrongToken(f"it belongs to user {user.name}, but was given as the password of another user")
        except WrongToken as refused:
            logger.warning("token refused", extra=fields(problem=cut(str(refused), 200)))
            return None
        self._remember(_digest(credentials.secret), user)
        return user

    def user(self, name: str) -> User | None:
        """The user of that name while a token of theirs is valid, with the rights that all such tokens have."""
        users = [
            shown.user
            for digest in self._of_name.get(name, ())
            if (shown := self._shown.get(digest)) is not None and self._holds(shown.user)
        ]
        if not users:
            return None
        grants = tuple(grant for grant in users[0].grants if all(grant in user.grants for user in users))
        return User(name, grants, max(user.expires_at or 0.0 for user in users))

    def _holds(self, user: User) -> bool:
        return user.expires_at is None or self._wall_clock() < user.expires_at

    def _claims(self, token: str) -> Mapping[str, Any]:
        """The claims, if signature, times, issuer and audience are valid."""
        import jwt

        if len(token) > TOKEN_BYTES_MAX:
            raise WrongToken(f"expected at most {TOKEN_BYTES_MAX} bytes, got {len(token)}")
        try:
            header = jwt.get_unverified_header(token)
            algorithm, kid = header.get("alg"), header.get("kid")
            if algorithm not in self._settings.algorithms:
                raise WrongToken(f"algorithm {algorithm!r} is not in oidc.algorithms")
            if (key := self.keys.find(kid)) is None:
                raise KeyUnknown
            if (problem := key.why_not(algorithm)) is not None:
                raise WrongToken(problem)
            claims: dict[str, Any] = jwt.decode(
                token,
                key=key.key.key,
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=self._settings.leeway_ms / 1000,
                options={"require": ["exp", "iss", "aud"]},
            )
            for name in DATES & claims.keys():
                if type(claims[name]) not in (int, float):
                    raise WrongToken(f"{name}: expected a number (RFC 7519, 2), got {cut(repr(claims[name]))}")
            if not claims["exp"] < EXPIRES_AT_MAX:
                raise WrongToken("exp is too far in the future; it is in seconds since 1970")
            return claims
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise WrongToken(str(error)) from None

    def _user(self, claims: Mapping[str, Any]) -> User:
        name = claims.get(self._settings.user_claim)
        if not isinstance(name, str) or not USER_NAME.fullmatch(name):
            problem = f"claim {self._settings.user_claim}: expected {USER_NAME.pattern}, got {cut(repr(name))}"
            raise WrongToken(f"{problem}; to use another claim, set oidc.user_claim")
        expires_at = float(claims["exp"]) + self._settings.leeway_ms / 1000
        return User(name, self._grants(claims), expires_at)

    def _grants(self, claims: Mapping[str, Any]) -> tuple[Grant, ...]:
        value = claim(claims, self._settings.rights_claim)
        values = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
        found: list[Grant] = []
        for each in values[:VALUES_MAX]:
            if self._roles:
                found.extend(self._roles.get(each, ()) if isinstance(each, str) else ())
            elif isinstance(each, str) and ":" in each:
                try:
                    found.append(read_grant(each))
                except InvalidInput as error:
                    logger.warning("ignoring an invalid grant in a token", extra=fields(problem=error))
        return tuple(dict.fromkeys(found))

    def _remember(self, digest: bytes, user: User) -> None:
        self._forget(digest)
        self._shown[digest] = _Shown(user, self._clock())
        self._of_name.setdefault(user.name, set()).add(digest)
        while len(self._shown) > REMEMBERED_MAX or not self._holds(next(iter(self._shown.values())).user):
            self._forget(next(iter(self._shown)))
            if not self._shown:
                break

    def _forget(self, digest: bytes) -> None:
        shown = self._shown.pop(digest, None)
        if shown is not None:
            of_name = self._of_name[shown.user.name]
            of_name.discard(digest)
            if not of_name:
                del self._of_name[shown.user.name]


def claim(claims: Mapping[str, Any], name: str) -> object:
    """The claim of that name; if there is none, the nested claim at the path of its parts."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def check_settings(settings: Oidc) -> None:
    """Raises InvalidConfiguration if logins by tokens lack a setting."""
    if settings.audience is None:
        problem = "missing; required with oidc.issuer: the value of aud in tokens for this server"
        raise InvalidConfiguration(problem, "oidc.audience")
    try:
        import cryptography
        import jwt
    except ImportError:
        problem = f"logins with tokens require the extra [oidc], which is not installed: {how_to_install('oidc')}"
        raise InvalidConfiguration(problem, "oidc.issuer") from None
    del jwt, cryptography


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
