"""Settings for all requests to one server: its addresses, timeouts, and how errors are interpreted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from ...core.errors import EventLogError
from ...formats.clients import retry
from ...formats.clients.address import urls_of
from ...formats.clients.answer import Answer
from ...formats.clients.retry import Attempts, ServerUnreachable
from .address import Address, address_of
from .problems import UnexpectedAnswer, check_uncoded, error_of
from .request import Request

T = TypeVar("T")

IDLE_CONNECTIONS_MAX = 32
CONNECT_S_MAX = 5.0
"""How long a connection to one of several addresses may take."""
PASSING = (OSError, *retry.PASSING)
"""Errors that may pass soon: the server is away (a proxy says so by 502, 503 or 504), stopping (503), or overloaded
(503)."""


class ConnectionLost(OSError):
    """The server disconnected, or does not speak HTTP, before its answer was complete."""


class NotConnected(ConnectionLost):
    """No connection could be opened, so nothing was sent."""


class DeadlinePassed(TimeoutError):
    """The caller's deadline passed. The server may be well: its answer was not awaited for the full timeout."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one client of a server."""

    addresses: tuple[Address, ...]
    """At least one; the first is asked first."""
    address_at: Callable[[str], Address]
    """The address of another URL, with the same credentials; raises InvalidInput."""
    timeout_s: float
    """How long a single answer is awaited."""
    retry_s: float
    on_waiting: Callable[[EventLogError], object] | None = None

    @property
    def url(self) -> str:
        """All addresses, for messages."""
        return ",".join(address.url for address in self.addresses)

    def attempts(self) -> Attempts:
        """How often to try: for `retry_s` since the first failure in a row."""
        return Attempts(within_s=self.retry_s, on_waiting=self.on_waiting)

    def closed(self) -> EventLogError:
        """The error of a request whose client is closed."""
        return ServerUnreachable(self.url, "this client was closed")


def terms_of(
    url: str | Sequence[str],
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    ca_file: str | None = None,
    is_verified: bool = True,
    timeout_s: float,
    retry_s: float,
    on_waiting: Callable[[EventLogError], object] | None = None,
) -> Terms:
    """The terms for the arguments of `connect`. Raises InvalidInput."""

    def address_at(url: str) -> Address:
        return address_of(url, user, password, token, ca_file, is_verified)

    return Terms(tuple(map(address_at, urls_of(url))), address_at, timeout_s, retry_s, on_waiting)


def meaning(request: Request[T], answer: Answer) -> T:
    """Decode a whole answer below 300. Raises ConnectionLost for cut JSON and for anything that is not JSON: a proxy
    cut it, or another server sent it. Raises UnexpectedAnswer for JSON of another shape, and for an answer that a
    gateway compressed.
    """
    try:
        return request.decode(answer)
    except msgspec.ValidationError as error:
        raise UnexpectedAnswer(answer.status, str(error)) from None
    except msgspec.DecodeError as error:
        check_uncoded(request.route.accept, answer)
        raise ConnectionLost(f"the answer is incomplete: {error}") from None


def refusal(request: Request[Any], answer: Answer) -> EventLogError:
    """The exception for a whole answer of 300 or above."""
    body = answer.body()
    try:
        check_uncoded(request.route.accept, answer)
    except UnexpectedAnswer as error:
        body = msgspec.json.encode({"detail": error.detail})
    return error_of(answer.status, body, answer.retry_after_s, request.log)
