"""SASL (part 5), checked by the guard. The mechanisms are ANONYMOUS if every client has all rights, PLAIN, and EXTERNAL
for a client certificate.

If tokens of an issuer are accepted, OAUTHBEARER (RFC 7628) and XOAUTH2 as well; PLAIN also accepts a token as password.
"""

from __future__ import annotations

import ssl

from ...core.access import ANYBODY, Credentials, Guard, LoginNotChecked, Unauthenticated, User
from ...formats.credentials import common_name
from ..protocol.codec import DecodeError
from ..protocol.connection import Connection
from ..protocol.sasl import AUTH, OK, SYS_TEMP, parse_bearer, parse_plain

BEARERS = ("OAUTHBEARER", "XOAUTH2")
"""Mechanisms whose response contains a bearer token."""


class Login:
    """The login of one connection."""

    def __init__(self, guard: Guard, peer: str, tls: ssl.SSLObject | None) -> None:
        self._guard, self._peer = guard, peer
        self._certified = common_name(tls.getpeercert()) if tls is not None else None
        """The name in the client certificate, verified by the TLS layer."""
        self.mechanism = ""
        self.user: User | None = ANYBODY if guard.is_open else None
        self.is_refused = False
        """Whether the last verdict was a refusal."""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The offered mechanisms. Some clients take the first that they know, and EXTERNAL before any other."""
        offered = ("EXTERNAL",) if self._certified else ()
        if self._guard.is_open:
            return (*offered, "PLAIN", "ANONYMOUS")
        return (*offered, "PLAIN", *BEARERS) if self._guard.takes_tokens else (*offered, "PLAIN")

    async def answer(self, engine: Connection, mechanism: str, response: bytes | None) -> None:
        """Answer an init or a response: with a challenge if it had no initial response, otherwise with the verdict."""
        self.mechanism = mechanism
        is_offered = mechanism in self.mechanisms
        if is_offered and mechanism != "ANONYMOUS" and response is None:
            engine.sasl_challenge(b"")
            return
        self.user, outcome = None, OK
        try:
            self.user = await self._authenticate(mechanism, response or b"")
        except Unauthenticated:
            outcome = AUTH
        except LoginNotChecked:
            outcome = SYS_TEMP
        self.is_refused = outcome != OK
        engine.sasl_outcome(outcome)

    def malformed(self, name: str = "") -> Unauthenticated:
        """The refusal of a malformed login, which needs no check but still counts as refused."""
        return self._guard.refused(name, self._peer)

    async def _authenticate(self, mechanism: str, response: bytes) -> User:
        if mechanism not in self.mechanisms:
            raise self.malformed()
        if mechanism == "ANONYMOUS":
            return await self._guard.authenticate(None, self._peer)
        if mechanism == "EXTERNAL":
            assert self._certified is not None
            if response and response != self._certified.encode():
                raise self.malformed(self._certified)  # a certificate is valid for its own name only
            return self._guard.trusted(self._certified, self._peer)
        if mechanism in BEARERS:
            try:
                name, token = parse_bearer(response)
            except DecodeError:
                raise self.malformed() from None
            return await self._guard.authenticate(Credentials(name, token), self._peer)
        try:
            identity, name, password = parse_plain(response)
        except DecodeError:
            raise self.malformed() from None
        if identity not in ("", name):
            raise self.malformed(name)  # acting for another user is not allowed (RFC 4616, 2)
        return await self._guard.authenticate(Credentials(name, password), self._peer)
