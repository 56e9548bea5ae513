"""Settings for logins by tokens of an issuer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from ....core.access import Grant
from ....core.errors import InvalidInput
from ....core.limits import show
from ....formats.settings.declaration import Reader, duration_ms, setting, shown_as, text, texts
from ..accounts import read_grant

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Public-key signatures (RFC 7518, 3.1; RFC 8037). Neither `none` nor HMAC, whose key would not be secret."""
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


@shown_as("URL")
def secure_url(value: object) -> str:
    """Parses a URL whose responses cannot be altered in transit: https, or http on loopback."""
    given = text(value)
    try:
        parts = urlsplit(given)
        is_secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK_HOSTS)
        is_whole = bool(parts.hostname) and not parts.username and not parts.fragment and parts.port != 0
    except ValueError:
        is_secure = is_whole = False
    if not (is_secure and is_whole):
        raise ValueError(f"expected an https:// URL (http:// only on loopback), got {show(given)}")
    return given


@shown_as("ROLE=RIGHTS:PATTERN,...")
def roles(value: object) -> tuple[str, ...]:
    """Parses a list of ROLE=GRANT."""
    found = texts(_without_splitting_rights(value))
    roles_of(found)
    return found


def roles_of(given: tuple[str, ...]) -> Mapping[str, tuple[Grant, ...]]:
    """The grants of each role. Raises ValueError."""
    grants: dict[str, tuple[Grant, ...]] = {}
    for each in given:
        role, equals, grant = each.partition("=")
        if not equals or not role.strip():
            raise ValueError(f"expected ROLE=RIGHTS:PATTERN such as writers=read,append:orders-*, got {show(each)}")
        try:
            grants[role.strip()] = (*grants.get(role.strip(), ()), read_grant(grant.strip()))
        except InvalidInput as error:
            raise ValueError(str(error)) from None
    return grants


def _without_splitting_rights(value: object) -> object:
    """Variables and flags separate roles by commas, as grants do rights: a role begins only at an item with a `=`."""
    if not isinstance(value, str):
        return value
    parts: list[str] = []
    for part in value.split(","):
        if parts and "=" not in part:
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return parts


@shown_as("ALGORITHM,...")
def algorithms(value: object) -> tuple[str, ...]:
    """Parses a list of signature algorithms."""
    found = texts(value)
    if not found or not set(found) <= set(ALGORITHMS):
        raise ValueError(f"expected a list of {', '.join(ALGORITHMS)}, got {show(value)}")
    return found


_url: Reader[str | None] = secure_url
_text: Reader[str | None] = text


@dataclass(frozen=True, slots=True)
class Oidc:
    """Logins by tokens (JWT) of an OpenID Connect issuer, in addition to users with passwords."""

    issuer: str | None = setting(None, _url, "URL of the issuer whose tokens are accepted; requires the extra [oidc]")
    """URL of the issuer whose [tokens are accepted](../guides/operations.md#tokens-of-an-issuer), as in their `iss`.
    Its keys are found through `ISSUER/.well-known/openid-configuration`. Requires the extra `[oidc]`.
    """
    audience: str | None = setting(None, _text, "required value of the aud claim; required with oidc.issuer")
    """The value that the claim `aud` of a token must equal or contain. Required, so that a token for another
    service cannot be used here.
    """
    keys_url: str | None = setting(
        None, _url, "URL of the issuer's keys (JWKS), if it is not in the discovery document"
    )
    """URL of the issuer's keys (JWKS). Default: the URL in its discovery document."""
    user_claim: str = setting("sub", text, "claim that contains the user name")
    """Claim with the user's name: `sub`, or a claim such as `preferred_username` or `azp` if `sub` is not a valid
    user name.
    """
    rights_claim: str = setting("headwater", text, "claim that contains the user's grants or roles")
    """Claim with the user's grants (`read,append:orders-*`) or roles: a list, or a string separated by spaces.
    `realm_access.roles` is the claim `roles` in `realm_access`, unless a claim has that whole name.
    """
    roles: tuple[str, ...] = setting((), roles, "grants for values of oidc.rights_claim: ROLE=GRANT")
    """Grants of roles: `writers=read,append:orders-*`; repeat a role for each grant. If any role is set, values of
    the claim are roles, and unknown roles are ignored; otherwise they are grants.
    """
    algorithms: tuple[str, ...] = setting(
        ("RS256", "PS256", "ES256", "EdDSA"),
        algorithms,
        f"accepted signature algorithms, a subset of {', '.join(ALGORITHMS)}",
    )
    leeway_ms: int = setting(30_000, duration_ms(0, 300_000), "tolerated clock difference for exp, nbf and iat")
    keys_age_ms: int = setting(
        3_600_000, duration_ms(10_000, 7 * 86_400_000), "maximum age of keys before they are fetched again"
    )
    """Age at which keys are fetched again. They are also fetched when a token names an unknown key. If the issuer
    does not answer, the last keys remain in use.
    """
