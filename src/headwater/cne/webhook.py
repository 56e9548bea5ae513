"""Calling webhooks: one POST and its outcome, the greeting of a new subscriber, and CloudEvents' OPTIONS handshake.

Connections are kept; redirects are not followed, because their target would escape the allow-list.
"""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from yarl import URL

from ..core.errors import InvalidInput
from ..core.limits import show
from ..formats.late import LateModule
from .allowed import AllowedHosts
from .settings import Settings

if TYPE_CHECKING:
    import aiohttp
else:
    aiohttp = LateModule("aiohttp")

ANSWER_BYTES_MAX = 64 * 1024
"""Of an answer that nobody reads, so that its connection can be used again."""
DNS_LIFETIME_S = 30
URI_CHARS_MAX = 2048
URLS_MAX = 20_000
USER_AGENT = "headwater"
JSON_HEADERS: Mapping[str, str] = {"Content-Type": "application/json"}
_TEMPORARY = frozenset({401, 403, 404, 405, 407, 408, 409, 410, 421, 423, 425, 429})
"""Answers below 500 that are about the endpoint, and not about the event."""


class Outcome(NamedTuple):
    """What became of one call."""

    status: int
    """The answer's, or 0 if there was none."""
    problem: str = ""
    """Why there was none."""
    retry_after_s: float = 0.0
    allowed_origin: str = ""
    """`WebHook-Allowed-Origin` of the answer."""

    @property
    def is_success(self) -> bool:
        """Whether the subscriber has the event: 204 as the standard says, or what consumers answer in its place."""
        return 200 <= self.status < 300

    @property
    def is_refusal(self) -> bool:
        """Whether the subscriber does not take this event, and would not take it later either."""
        return 300 <= self.status < 500 and self.status not in _TEMPORARY

    @property
    def text(self) -> str:
        """In a few words."""
        return self.problem or f"answered {self.status}"


def endpoint_uri(text: str, allowed: AllowedHosts, where: str) -> str:
    """The URI itself, if a webhook may be there. Raises InvalidInput."""
    if len(text) > URI_CHARS_MAX:
        raise InvalidInput(f"{len(text)} characters given, at most {URI_CHARS_MAX} are allowed", where)
    try:
        url = URL(text)
        host, port = url.host, url.port
    except ValueError as error:
        raise InvalidInput(f"{show(text)} is no URI: {error}", where) from None
    if url.scheme not in ("http", "https") or not host or not port:
        raise InvalidInput(f"an http or https URI with a host is expected, {show(text)} given", where)
    if url.user is not None or url.password is not None:
        raise InvalidInput("a URI with a user or password is not allowed", where)
    if not allowed.may_permit(host):
        problem = f"{show(host)} is not a host that webhooks may be on; the setting cne.hosts names those"
        raise InvalidInput(problem, where)
    return text


def shown(uri: str) -> str:
    """The URI without what may be secret in it."""
    return str(URL(uri).with_user(None).with_query(None).with_fragment(None))


class Webhooks:
    """The one HTTP client of a front end, on one event loop: `start` it before the first call, and `close` it."""

    def __init__(self, settings: Settings, sockets_max: int | None = None) -> None:
        """`sockets_max` is by default a share of what the process may have: see Sockets."""
        self._sockets_max = sockets_max
        self.allowed = AllowedHosts(settings.hosts)
        self.calls: Counter[str] = Counter(success=0, failure=0)
        """POSTs, greetings among them, by what became of them."""
        self._urls: dict[str, URL] = {}
        self._timeout_s = settings.timeout_ms / 1000
        self._opening = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None
        self._is_started = False

    def start(self) -> None:
        """Be ready to call: with the first call comes the HTTP client, which takes a tenth of a second to load."""
        self._is_started = True

    async def _opened(self) -> aiohttp.ClientSession:
        assert self._is_started, "it was not started"
        async with self._opening:
            if self._session is None:
                await asyncio.to_thread(import_module, f"{__package__}.answers")
                self._session = self._open()
        return self._session

    def _open(self) -> aiohttp.ClientSession:
        from .answers import Connector, Sockets
        from .resolving import AllowedResolver

        self._sockets = Sockets(self._sockets_max)
        self._resolver = AllowedResolver(self.allowed, aiohttp.ThreadedResolver())
        return aiohttp.ClientSession(
            connector=Connector(
                self._sockets,
                limit=0,  # `sockets` has one, for which waiting does not count as the endpoint's time
                resolver=self._resolver,
                ttl_dns_cache=DNS_LIFETIME_S,
                keepalive_timeout=60,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding"),
            headers={"User-Agent": USER_AGENT},
            trust_env=False,
        )

    def _url(self, uri: str) -> URL | None:
        """The URI, read once; None where it is not allowed: the list may be shorter than when it was subscribed."""
        url = URL(uri)
        if not self.allowed.may_permit(url.host or ""):
            return None
        if len(self._urls) >= URLS_MAX:
            self._urls.clear()
        self._urls[uri] = url
        return url

    async def post(
        self, uri: str, body: bytes, headers: Mapping[str, str] = JSON_HEADERS, *, timeout_s: float | None = None
    ) -> Outcome:
        """POST the body there. Never raises: what goes wrong is the outcome."""
        outcome = await self._call("POST", uri, body, headers, timeout_s)
        self.calls["success" if outcome.is_success else "failure"] += 1
        return outcome

    async def allows(self, uri: str, origin: str) -> bool:
        """Whether the webhook lets itself be called from that origin (HTTP 1.1 Web Hooks for Event Delivery, 4)."""
        headers = {"WebHook-Request-Origin": origin, "WebHook-Request-Rate": "*"}
        outcome = await self._call("OPTIONS", uri, b"", headers, None)
        # Compared as a whole: an origin that only begins with ours is not ours.
        return outcome.is_success and outcome.allowed_origin in ("*", origin)

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            await self._resolver.close()

    async def _call(
        self, method: str, uri: str, body: bytes, headers: Mapping[str, str], timeout_s: float | None
    ) -> Outcome:
        session = self._session or await self._opened()
        async with self._sockets.calls:
            return await self._answered(session, method, uri, body, headers, timeout_s)

    async def _answered(
        self,
        session: aiohttp.ClientSession,
        method: str,
        uri: str,
        body: bytes,
        headers: Mapping[str, str],
        timeout_s: float | None,
    ) -> Outcome:
        timeout = aiohttp.ClientTimeout(total=self._timeout_s if timeout_s is None else timeout_s)
        try:
            url = self._urls.get(uri) or self._url(uri)
            if url is None:
                return Outcome(0, "it is not on a host that webhooks may be on")
            async with session.request(
                method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                if answer.status != 204:
                    await _discard(answer)
                return Outcome(
                    answer.status,
                    retry_after_s=_retry_after_s(answer.headers.get("Retry-After", "")),
                    allowed_origin=answer.headers.get("WebHook-Allowed-Origin", ""),
                )
        except TimeoutError:
            return Outcome(0, f"no answer within {timeout.total} s")
        except (aiohttp.ClientError, OSError, ValueError, asyncio.IncompleteReadError) as error:
            return Outcome(0, _problem(error))


async def _discard(answer: aiohttp.ClientResponse) -> None:
    """Read the body away, so that the connection can be kept; one that does not end is cut off."""
    size = 0
    async for chunk in answer.content.iter_any():
        size += len(chunk)
        if size > ANSWER_BYTES_MAX:
            answer.close()
            return


def _problem(error: Exception) -> str:
    """What an error says, on one line, without the URI, in which there may be a secret."""
    if isinstance(error, aiohttp.ClientResponseError):
        text = error.message
    else:
        text = "" if isinstance(error, aiohttp.InvalidURL) else str(error)
    return " ".join(f"{type(error).__name__}: {text}".split())[:300]


def _retry_after_s(text: str) -> float:
    """Seconds, or the time of day, of a `Retry-After`; 0 for what is neither."""
    if text.isascii() and text.isdigit() and len(text) < 8:
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0
