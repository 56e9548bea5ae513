"""The front end of the console: its routes and pages; and a page's login, user and rights.

| request | |
| --- | --- |
| `POST /console/session` | log in with a name and a password, or with a token; the response sets a cookie |
| `GET /console/session` | the user and its grants; with `?log=`, the rights on that log |
| `DELETE /console/session` | log out |
| `GET /console/history` | recent measurements (`history`) |
| `GET /console/stream` | live measurements (`stream`) |
| `GET /console/...` | the page, and its files (`pages`) |
"""

from __future__ import annotations

import logging

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..core.access import ANYBODY, Credentials, Right, User
from ..core.errors import InvalidInput
from ..core.limits import show
from ..formats import jsontext
from ..http import Exchange, FrontEnd, Header, Receive, Routes, Scope, Send
from ..http.errors import InvalidParameter, RouteNotFound
from ..http.exchange import as_json
from ..http.front_end import Handler
from ..http.sessions import FIELD, NO_SECRET, both_secrets, cookie_name, field_of, secret_of
from . import pages
from .history import history
from .host import ConsoleHost
from .sessions import IDLE_S
from .stream import stream

BODY_BYTES_MAX = 16 * 1024
LOG_CHARS_MAX = 64
NAME_CHARS_MAX, SECRET_CHARS_MAX = 256, 8192
"""An issuer's token is some kilobytes long."""
OF_LOGS = (Right.READ, Right.APPEND, Right.MANAGE)
"""The rights on a log."""
_NO_STORE: Header = (b"cache-control", b"no-store")
_CLEAR: Header = (b"clear-site-data", b'"cache", "storage"')
_logger = logging.getLogger("headwater.console")


class LoginIn(Struct, forbid_unknown_fields=True):
    """The body of a login."""

    name: str | None = None
    password: str | None = None
    token: str | None = None


class GrantOut(Struct):
    """Rights on the logs whose names match a pattern."""

    logs: str
    rights: list[str]


class SessionOut(Struct):
    """How long a session lasts without a request, and in total."""

    idle_ms: int
    left_ms: int
    secret: str | UnsetType = UNSET
    """In the response to a login: what the page sends as FIELD from then on."""


class LogRightsOut(Struct):
    """What a user may do with one log."""

    log: str
    rights: list[str]


class ConsoleOut(Struct):
    """The server's settings for the pages of its console."""

    read_only: bool
    lag_events: int
    lag_ms: int
    """The lag above which a consumer is reported as lagging; 0 means no bound."""
    ports: dict[str, int]
    """Other ports of the server: `amqp`, and `flight` if it is served."""


class WhoOut(Struct, omit_defaults=True):
    """The user, and its rights."""

    user: str
    has_users: bool
    grants: list[GrantOut]
    server: list[str]
    console: ConsoleOut
    on: LogRightsOut | UnsetType = UNSET
    session: SessionOut | UnsetType = UNSET


_decoder = msgspec.json.Decoder(LoginIn)


class Application(FrontEnd[ConsoleHost, Exchange]):
    """The console's calls and pages, on one event loop. See FrontEnd."""

    def __init__(self, host: ConsoleHost) -> None:
        """The host's sessions are those that its guard accepts as logins."""
        self.routes: Routes[Handler[ConsoleHost, Exchange]] = Routes()
        for method, path, handler in _TABLE:
            has_parameters = handler in (who, history, stream)
            self.routes.add(method, path, handler, body_bytes_max=BODY_BYTES_MAX, has_parameters=has_parameters)
        self._pages: Routes[Handler[ConsoleHost, Exchange]] = Routes()
        for path in ("/console/", *("/console" + "/{segment}" * depth for depth in range(1, pages.PAGE_DEPTH_MAX + 1))):
            self._pages.add("GET", path, pages.page, has_parameters=True)
        self._pages.add("GET", "/console", pages.lead)
        self._pages.add("GET", "/console/static/{version}/{name}", pages.file)
        super().__init__(host, self._find, _logger, Exchange)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See FrontEnd. Every response has the header fields of SECURITY for the browser."""
        await super().__call__(scope, receive, pages.secured(send))

    def _find(self, exchange: Exchange) -> Handler[ConsoleHost, Exchange]:
        """The call at a path, or otherwise the page. Raises the same errors as Routes.find."""
        try:
            return self.routes.find(exchange)
        except RouteNotFound:
            return self._pages.find(exchange)


async def log_in(host: ConsoleHost, exchange: Exchange) -> None:
    """POST /console/session"""
    if field_of(exchange.scope) != NO_SECRET:
        raise InvalidParameter(FIELD.decode(), "missing; expected the value 1")
    credentials = _credentials(jsontext.decode(_decoder, await exchange.json_body()))
    if host.guard.is_open:
        await exchange.answer(200, as_json(_shown(host, ANYBODY, has_users=False)), headers=(_NO_STORE,))
        return
    before = host.guard.seal(
        credentials.name, is_login=True
    )  # a password that changed during the check must not open a session
    user = await host.guard.authenticate(credentials, exchange.peer)
    seal = before if credentials.name else host.guard.seal(user.name, is_login=True)
    of_cookie, of_field = host.sessions.open(user, seal)
    session = host.sessions.find(both_secrets(of_cookie, of_field))
    if session is None:  # the accounts have changed during the check
        raise host.guard.refused(user.name, exchange.peer)
    shown = _shown(host, user)
    shown.session = SessionOut(int(IDLE_S * 1000), host.sessions.left_ms(session), of_field)
    await exchange.answer(200, as_json(shown), headers=(_NO_STORE, _cookie(exchange, of_cookie)))


async def who(host: ConsoleHost, exchange: Exchange) -> None:
    """GET /console/session"""
    log = exchange.parameters("log").get("log")
    if log is not None and not 0 < len(log) <= LOG_CHARS_MAX:
        raise InvalidParameter("log", f"expected the name of a log, got {show(log)}")
    user = await host.user(exchange)
    shown = _shown(host, user, has_users=not host.guard.is_open)
    if log is not None:
        shown.on = LogRightsOut(log, [right for right in OF_LOGS if user.may(right, log)])
    if exchange.header(b"authorization") is None and (secret := secret_of(exchange.scope)) is not None:
        session = host.sessions.find(secret)
        if session is not None:
            shown.session = SessionOut(int(IDLE_S * 1000), host.sessions.left_ms(session))
    await exchange.answer(200, as_json(shown), headers=(_NO_STORE,))


async def log_out(host: ConsoleHost, exchange: Exchange) -> None:
    """DELETE /console/session. A missing session is no error."""
    if (secret := secret_of(exchange.scope)) is not None:
        host.sessions.close(secret)
    await exchange.answer_empty(204, (_NO_STORE, _CLEAR, _cookie(exchange, None)))


def _credentials(given: LoginIn) -> Credentials:
    """Raises InvalidInput if neither or both are given, or a value is too long."""
    if given.token is not None:
        if given.name is not None or given.password is not None:
            raise InvalidInput("expected `name` and `password`, or `token`, got both", "token")
        return Credentials("", _checked(given.token, SECRET_CHARS_MAX, "token"))
    if given.name is None or given.password is None:
        raise InvalidInput("expected `name` and `password`, or `token`", "name" if given.name is None else "password")
    name = _checked(given.name, NAME_CHARS_MAX, "name")
    return Credentials(name, _checked(given.password, SECRET_CHARS_MAX, "password"))


def _checked(text: str, chars_max: int, where: str) -> str:
    if not 0 < len(text) <= chars_max:
        raise InvalidInput(f"expected 1 to {chars_max} characters, got {len(text)}", where)
    return text


def _cookie(exchange: Exchange, secret: str | None) -> Header:
    """The field that sets or removes the cookie. Without Max-Age, it ends with the browser at the latest."""
    name = cookie_name(exchange.scope)
    secure = "; Secure" if exchange.scope.get("scheme") == "https" else ""
    ends = "; Max-Age=0" if secret is None else ""
    return b"set-cookie", f"{name}={secret or ''}; Path=/; HttpOnly; SameSite=Strict{secure}{ends}".encode()


def _shown(host: ConsoleHost, user: User, *, has_users: bool = True) -> WhoOut:
    wants = ConsoleOut(host.wants.read_only, host.lag_events, host.lag_ms, dict(host.ports))
    grants = [GrantOut(each.logs, [right for right in Right if right in each.rights]) for each in user.grants]
    return WhoOut(user.name, has_users, grants, [right for right in Right if user.may(right, "*")], wants)


_SESSION = "/console/session"
_TABLE: list[tuple[str, str, Handler[ConsoleHost, Exchange]]] = [
    ("POST", _SESSION, log_in),
    ("GET", _SESSION, who),
    ("DELETE", _SESSION, log_out),
    ("GET", "/console/history", history),
    ("GET", "/console/stream", stream),
]
