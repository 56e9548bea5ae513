"""What holds for all requests to one server, whoever waits for them: where it is, the patience, what errors mean."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.errors import EventLogError
from ..formats import retrying
from ..formats.answer import Answer
from ..formats.retrying import Attempts
from ..formats.unreachable import ServerUnreachable
from .address import Address
from .problems import error_of
from .request import Request

IDLE_CONNECTIONS_MAX = 32
PASSING = (OSError, *retrying.PASSING)
"""What may be better in a moment: the server is away, stopping (503), or has too much to do (503)."""


class ConnectionLost(OSError):
    """The server went away, or does not speak HTTP, before its answer was complete."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one client of a server."""

    address: Address
    timeout_s: float
    """How long a single answer is awaited."""
    retry_s: float
    on_waiting: Callable[[EventLogError], object] | None = None

    def attempts(self, sleep: Callable[[float], object] = time.sleep) -> Attempts:
        """How often to try: until `retry_s` went by since the first failure in a row."""
        return Attempts(within_s=self.retry_s, sleep=sleep, on_waiting=self.on_waiting)

    def known(self, error: OSError | EventLogError) -> EventLogError:
        """What a failed attempt is to be told as: ServerUnreachable for an OSError."""
        if not isinstance(error, OSError):
            return error
        unreachable = ServerUnreachable(self.address.url, str(error) or type(error).__name__)
        unreachable.__cause__ = error
        return unreachable

    def closed(self) -> EventLogError:
        """What a request gets when its client is closed."""
        return ServerUnreachable(self.address.url, "this client was closed")


def refusal(request: Request[Any], answer: Answer) -> EventLogError:
    """The exception that a whole answer of 400 or above stands for."""
    return error_of(answer.status, answer.body(), answer.retry_after_s, request.log)
