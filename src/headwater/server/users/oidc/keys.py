"""The keys of an issuer (JWKS, RFC 7517): fetched on demand, kept, and refetched at a limited rate.

Known keys stay valid until newer ones were fetched: if the issuer is down, logins by known keys still work. An unknown
key may be a new one, so it causes a fetch - at a limited rate, however many key names are made up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ....core.access import IssuerUnavailable
from ....core.quoting import cut, show
from ....http.outgoing import Caller, Sockets, lines_of, target_of
from ...process.log_lines import fields
from .settings import Oidc, secure_url

if TYPE_CHECKING:
    from jwt import PyJWK

logger = logging.getLogger("headwater.security")

FETCH_S_MAX = 5.0
"""How long the issuer may take for an answer."""
FETCHED_BYTES_MAX = 256 * 1024
SOCKETS_MAX = 2
"""Sockets of one fetch: that of the call, and one that is closing."""
REFRESH_S_MIN = 10.0
"""How soon after a fetch the next one may be made."""
KEYS_MAX = 100
RSA_BITS_MIN, RSA_BITS_MAX = 2048, 8192
"""A shorter key is not secure (RFC 7518, 3.3); a longer one takes the event loop too long."""
FAMILIES = {"RSA": ("RS", "PS"), "EC": ("ES",), "OKP": ("Ed",)}
"""Key types, and the prefixes of their algorithm names."""

Fetch = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A signing key of an issuer."""

    key: PyJWK
    algorithm: str | None
    """The only algorithm that the issuer uses it with (`alg`: RFC 7517, 4.4); None if the issuer names none."""

    def why_not(self, algorithm: str) -> str | None:
        """Why this key may not verify tokens by that algorithm (RFC 8725, 3.1); None if it may."""
        if not algorithm.startswith(FAMILIES[str(self.key.key_type)]):
            return f"algorithm {algorithm!r} cannot be used with a key of type {self.key.key_type}"
        if self.algorithm not in (None, algorithm):
            return f"expected algorithm {self.algorithm!r} for this key, got {algorithm!r}"
        return None


class IssuerKeys:
    """The keys of one issuer. For one event loop."""

    def __init__(self, settings: Oidc, fetch: Fetch | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`fetch` returns the document at a URL; it raises OSError or ValueError."""
        self._settings, self._fetch, self._clock = settings, fetch or fetched, clock
        self._keys: dict[str | None, IssuerKey] = {}
        self._tried_at = self._fetched_at = float("-inf")
        self._problem: str | None = "its keys have not been fetched yet"
        """Why the last fetch failed; None if it succeeded."""
        self._task: asyncio.Task[None] | None = None

    def find(self, kid: str | None) -> IssuerKey | None:
        """The key with that name; for a token that names none, the only one."""
        if self._keys and self._clock() - self._fetched_at >= self._settings.keys_age_ms / 1000:
            self._begin()
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    async def refresh(self) -> None:
        """Fetch the keys, unless they were fetched just now. Raises IssuerUnavailable if nothing newer can be known."""
        task = self._begin()
        if task is not None:
            await asyncio.shield(task)  # a caller that disconnects must not end the fetch of the others
        if self._problem is not None:
            raise IssuerUnavailable(REFRESH_S_MIN)

    def _begin(self) -> asyncio.Task[None] | None:
        if self._task is None and self._clock() - self._tried_at >= REFRESH_S_MIN:
            self._tried_at = self._clock()
            self._task = asyncio.get_running_loop().create_task(self._renew())
        return self._task

    async def _renew(self) -> None:
        try:
            async with asyncio.timeout(FETCH_S_MAX):
                self._keys = keys_of(await self._fetch(await self._keys_url()))
            self._fetched_at, self._problem = self._clock(), None
        except (OSError, ValueError) as error:  # TimeoutError is an OSError
            self._problem = cut(f"{type(error).__name__}: {error}", 300)
            known = fields(issuer=self._settings.issuer, problem=self._problem, keys=len(self._keys))
            logger.warning("cannot fetch the issuer's keys; the known keys remain valid", extra=known)
        finally:
            self._task = None

    async def _keys_url(self) -> str:
        if self._settings.keys_url is not None:
            return self._settings.keys_url
        assert self._settings.issuer is not None, "no issuer is configured"
        issuer = self._settings.issuer.removesuffix("/")
        found = _decoded(await self._fetch(f"{issuer}/.well-known/openid-configuration"))
        if found.get("issuer") != self._settings.issuer:  # OpenID Connect Discovery, 4.3
            raise ValueError(f"its discovery document is of the issuer {show(found.get('issuer'))}")
        return secure_url(found.get("jwks_uri"))


def keys_of(document: bytes) -> dict[str | None, IssuerKey]:
    """The keys of a JWKS by name, without those that cannot sign. Raises ValueError if none is left."""
    listed = _decoded(document).get("keys")
    found = {}
    for each in (listed if isinstance(listed, list) else [])[:KEYS_MAX]:
        if isinstance(each, dict) and (key := _key(each)) is not None:
            kid = each.get("kid")
            found[kid if isinstance(kid, str) else None] = key
    if not found:
        raise ValueError("its JWKS document has no usable key (RSA of 2048 to 8192 bits, EC, Ed25519)")
    return found


def _key(given: Mapping[str, Any]) -> IssuerKey | None:
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    if given.get("kty") not in FAMILIES or given.get("use", "sig") != "sig":
        return None
    try:
        key = PyJWK(dict(given))
        bits = key.key.key_size if given["kty"] == "RSA" else RSA_BITS_MIN
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None  # for example, of an unknown curve
    return IssuerKey(key, given.get("alg")) if RSA_BITS_MIN <= bits <= RSA_BITS_MAX else None


def _decoded(document: bytes) -> dict[str, Any]:
    return msgspec.json.decode(document, type=dict[str, Any])


async def fetched(url: str) -> bytes:
    """The document at that URL. Raises OSError, ValueError."""
    caller = Caller(Sockets(SOCKETS_MAX))
    try:
        target = target_of(url)
        request = target.head(b"GET", lines_of({"Accept": "application/json"}), None)
        reply = await caller.call(target, request, FETCH_S_MAX, FETCHED_BYTES_MAX, wants_body=True)
    except (OSError, ValueError) as error:
        raise ConnectionError(f"{url}: {error}") from None
    finally:
        await caller.close()
    if reply.status != 200:
        raise ValueError(f"{url} answered {reply.status}")
    if reply.is_cut:
        raise ValueError(f"the response of {url} exceeds the limit of {FETCHED_BYTES_MAX} bytes")
    return reply.body
