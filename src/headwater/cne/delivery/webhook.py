"""Calling webhooks: one POST and its outcome, the greeting of a new subscriber, and CloudEvents' OPTIONS handshake.

Connections are kept alive; redirects are not followed, because their target would bypass the allow-list.
"""

from __future__ import annotations

import email.utils
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from yarl import URL

from ...core.errors import InvalidInput
from ...core.limits import show
from ...http.outgoing import Caller, NotSent, Sockets, Target, Tls, addresses_of, lines_of, target_of
from ...http.outgoing.resolver import Resolve
from ..settings import Settings
from .allowed import AllowedHosts, HostNotAllowed


class AllowedResolver:
    """Resolves names to allowed addresses only; connections are made to no others."""

    def __init__(self, allowed: AllowedHosts, resolve: Resolve) -> None:
        self._allowed, self._resolve = allowed, resolve

    async def resolve(self, host: str) -> Sequence[str]:
        """The addresses of that name. Raises HostNotAllowed, and the errors of `resolve`."""
        found = await self._resolve(host)
        if self._allowed.permits_name(host):
            return found
        kept = [address for address in found if self._allowed.permits_address(address)]
        if not kept:
            raise HostNotAllowed(f"host {host} is not allowed for webhooks")
        return kept


ANSWER_BYTES_MAX = 64 * 1024
"""The maximum number of bytes of an unused answer that are read so that its connection can be reused."""
URI_CHARS_MAX = 2048
TARGETS_MAX = 20_000
"""The maximum number of cached parsed URIs."""
JSON_HEADERS: Mapping[str, str] = {"Content-Type": "application/json"}
_JSON_LINES = lines_of(JSON_HEADERS)
_TEMPORARY = frozenset({401, 403, 404, 405, 407, 408, 409, 410, 421, 423, 425, 429})
"""Statuses below 500 that concern the endpoint, not the event."""


class Outcome(NamedTuple):
    """The outcome of one call."""

    status: int
    """The answer's status, or 0 without an answer."""
    problem: str = ""
    """Why there was no answer."""
    retry_after_s: float = 0.0
    allowed_origin: str = ""
    """`WebHook-Allowed-Origin` of the answer."""

    @property
    def is_success(self) -> bool:
        """Whether the subscriber has the event: 204 by the standard, or a status that consumers send instead."""
        return 200 <= self.status < 300

    @property
    def is_refusal(self) -> bool:
        """Whether the subscriber refuses this event permanently."""
        return 300 <= self.status < 500 and self.status not in _TEMPORARY

    @property
    def text(self) -> str:
        """A short description."""
        return self.problem or f"answered {self.status}"


def endpoint_uri(text: str, allowed: AllowedHosts, where: str) -> str:
    """The URI itself, if it is allowed for a webhook. Raises InvalidInput."""
    if len(text) > URI_CHARS_MAX:
        raise InvalidInput(f"{len(text)} characters given, at most {URI_CHARS_MAX} are allowed", where)
    if not text.isprintable():
        raise InvalidInput(f"{show(text)} is not a URI: it contains a control character", where)
    try:
        url = URL(text)
        host, port = url.host, url.port
    except ValueError as error:
        raise InvalidInput(f"{show(text)} is not a URI: {error}", where) from None
    if url.scheme not in ("http", "https") or not host or not port:
        raise InvalidInput(f"expected an http or https URI with a host, got {show(text)}", where)
    if url.user is not None or url.password is not None:
        raise InvalidInput("a URI with a user or password is not allowed", where)
    if not allowed.may_permit(host):
        problem = f"host {show(host)} is not allowed for webhooks (setting cne.hosts)"
        raise InvalidInput(problem, where)
    return text


def shown(uri: str) -> str:
    """The URI without possible secrets."""
    return str(URL(uri).with_user(None).with_query(None).with_fragment(None))


NOT_SENT = Outcome(0, "another server delivers now")
"""Nothing was sent: see `LogStore.may_act`."""


def tls_of(settings: Settings) -> Tls:
    """TLS for the calls, with the configured certificates. No file is read yet."""
    return Tls(settings.webhook_ca, settings.webhook_certificate, settings.webhook_key)


class Webhooks:
    """Calls the webhooks of a front end, on one event loop: `start` it before the first call, and `close` it."""

    def __init__(
        self, settings: Settings, sockets_max: int | None = None, may_act: Callable[[], bool] = lambda: True
    ) -> None:
        """`sockets_max` defaults to a share of the process's limit: see Sockets.

        `may_act` is called before anything is sent: see LogStore.
        """
        self._may_act = may_act
        self._sockets_max = sockets_max
        self.allowed = AllowedHosts(settings.hosts)
        self.calls: Counter[str] = Counter(success=0, failure=0)
        """POSTs, greetings included, by outcome."""
        self._targets: dict[str, Target] = {}
        self._timeout_s = settings.timeout_ms / 1000
        self._tls = tls_of(settings)
        self._caller: Caller | None = None

    def start(self) -> None:
        """Prepare for calls."""
        self._caller = Caller(
            Sockets(self._sockets_max), AllowedResolver(self.allowed, addresses_of).resolve, self._may_act, self._tls
        )

    async def post(
        self, uri: str, body: bytes, headers: Mapping[str, str] = JSON_HEADERS, *, timeout_s: float | None = None
    ) -> Outcome:
        """POST the body. Never raises: errors are outcomes; NOT_SENT if this server may not act.

        It may be sent twice if a reused connection ends without an answer.
        """
        outcome = await self._call(b"POST", uri, body, headers, timeout_s)
        if outcome is not NOT_SENT:
            self.calls["success" if outcome.is_success else "failure"] += 1
        return outcome

    async def allows(self, uri: str, origin: str) -> bool:
        """Whether the webhook allows calls from that origin (HTTP 1.1 Web Hooks for Event Delivery, 4)."""
        headers = {"WebHook-Request-Origin": origin, "WebHook-Request-Rate": "*"}
        outcome = await self._call(b"OPTIONS", uri, b"", headers, None)
        # Compared whole, because an origin that merely begins with ours is not ours.
        return outcome.is_success and outcome.allowed_origin in ("*", origin)

    async def close(self) -> None:
        """Close every connection."""
        if self._caller is not None:
            await self._caller.close()

    async def _call(
        self, method: bytes, uri: str, body: bytes, headers: Mapping[str, str], timeout_s: float | None
    ) -> Outcome:
        assert self._caller is not None, "it was not started"
        if timeout_s is None:
            timeout_s = self._timeout_s
        try:
            target = self._targets.get(uri) or self._target(uri)
            if target is None:
                return Outcome(0, "its host is not allowed for webhooks")
            lines = _JSON_LINES if headers is JSON_HEADERS else lines_of(headers)
            request = target.head(method, lines, len(body)) + body
            reply = await self._caller.call(target, request, timeout_s, ANSWER_BYTES_MAX)
        except NotSent:
            return NOT_SENT
        except TimeoutError:
            return Outcome(0, f"no answer within {timeout_s} s")
        except (OSError, ValueError) as error:
            return Outcome(0, _problem(error))
        status, fields = reply.status, reply.fields
        if not fields:
            return Outcome(status)
        retry_after = fields.get(b"retry-after", b"").decode("latin-1")
        allowed_origin = fields.get(b"webhook-allowed-origin", b"").decode("latin-1")
        return Outcome(status, "", _retry_after_s(retry_after) if retry_after else 0.0, allowed_origin)

    def _target(self, uri: str) -> Target | None:
        """The parsed URI, cached; None if it is not allowed, because the allow-list may have shrunk since the
        subscription.
        """
        if not self.allowed.may_permit(URL(uri).host or ""):
            return None
        target = target_of(uri)
        if len(self._targets) >= TARGETS_MAX:
            self._targets.clear()
        self._targets[uri] = target
        return target


def _problem(error: Exception) -> str:
    """An error's text on one line, never with the URI, which may contain a secret."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _retry_after_s(text: str) -> float:
    """The pause of a `Retry-After`, in seconds or as a date; 0 if it is neither."""
    if text.isascii() and text.isdigit() and len(text) < 8:
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0
