"""Authentication of calls: a middleware for the Authorization header, and the handshake.

gRPC does not give a middleware the peer, so the header is only read here and checked by the call itself. A handshake
never reaches a call of ours: its header is checked here, and its peer is unknown. So that no handshake waits for the
credentials of another, a check that would have to wait is made when the session is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import unquote

import pyarrow.flight as flight

from ...core.access import Credentials, LoginNotChecked, User
from ...formats.credentials import UNREADABLE, credentials_of
from ..errors import flight_error_of
from .backend import Backend
from .sessions import TOKEN_PREFIX, Sessions, new_token

HEADER = "authorization"
MIDDLEWARE = "authentication"


class Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """The caller of one call."""

    def __init__(self, authenticate: Callable[[str], User], token: str | None) -> None:
        self._authenticate, self._token = authenticate, token
        self._user: User | None = None

    def user(self, peer: str) -> User:
        """The authenticated user. Raises Unauthenticated."""
        if self._user is None:
            self._user = self._authenticate(peer)
        return self._user

    def sending_headers(self) -> Mapping[str, str]:
        """Called by Flight. The token is not valid until the caller is authenticated."""
        return {} if self._token is None else {HEADER: f"Bearer {self._token}"}


class Callers(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Reads the header of each call."""

    def __init__(self, backend: Backend, sessions: Sessions) -> None:
        self._backend, self._sessions = backend, sessions

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, Sequence[str | bytes]]) -> Caller:
        """Called by Flight."""
        credentials = credentials_of(_header(headers))
        caller = self._caller(credentials)
        if info.method == flight.FlightMethod.HANDSHAKE:
            try:
                return self._shaken(caller, credentials)
            except Exception as error:
                raise flight_error_of(error, "a handshake") from None
        return caller

    def _shaken(self, caller: Caller, credentials: Credentials | None) -> Caller:
        """The caller of a handshake, authenticated now, or with a session that is checked on first use."""
        try:
            caller.user("")
        except LoginNotChecked:
            if credentials is None or not credentials.name:
                raise
            token = new_token()
            self._sessions.put_off(token, credentials)
            return Caller(lambda peer: self._user(token, peer), token)
        return caller

    def _caller(self, credentials: Credentials | None) -> Caller:
        if credentials is None or credentials is UNREADABLE:
            return Caller(lambda peer: self._backend.authenticate(credentials, peer).user, None)
        if not credentials.name and credentials.secret.startswith(TOKEN_PREFIX):
            return Caller(lambda peer: self._user(credentials.secret, peer), None)
        if (known := self._sessions.token_of(credentials)) is not None:
            return Caller(lambda peer: self._sessions.user(known, peer), known)
        token = new_token()
        return Caller(lambda peer: self._begin(credentials, token, peer), token if credentials.name else None)

    def _user(self, token: str, peer: str) -> User:
        if (credentials := self._sessions.put_off_by(token)) is not None:
            return self._begin(credentials, token, peer)
        return self._sessions.user(token, peer)

    def _begin(self, credentials: Credentials, token: str, peer: str) -> User:
        login = self._backend.authenticate(credentials, peer)
        self._sessions.begin(token, credentials, login)
        return login.user


class NoHandshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Flight refuses handshakes without such a handler; the work is done above."""

    def authenticate(self, outgoing: flight.ServerAuthSender, incoming: flight.ServerAuthReader) -> None:
        """Called by Flight."""

    def is_valid(self, token: bytes) -> str:
        """Called by Flight."""
        return ""


def address_of(peer: str) -> str:
    """The address in gRPC's name of a peer; that name differs for each connection.

    (`ipv4:10.0.0.1:5000`, `ipv6:%5B::1%5D:5000`)
    """
    _, _, place = unquote(peer).partition(":")
    return place.rpartition(":")[0].strip("[]") or peer


def _header(headers: Mapping[str, Sequence[str | bytes]]) -> bytes | None:
    for name, values in headers.items():
        if name.lower() == HEADER and values:
            return values[0].encode("utf-8", "surrogateescape") if isinstance(values[0], str) else values[0]
    return None
