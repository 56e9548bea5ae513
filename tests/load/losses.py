"""How a call may end when a server goes away: what a client may outlive, and what is a fault."""

from __future__ import annotations

from collections.abc import Callable
from http.client import HTTPException
from urllib.error import HTTPError, URLError

from websockets.exceptions import WebSocketException

from headwater.amqp.protocol.conditions import AmqpError
from headwater.client import UnexpectedAnswer
from headwater.core.errors import Closed, NotPrimary, OutcomeUnknown, Overloaded, StorageUnavailable
from headwater.flight.errors import Busy, ServerFault
from headwater.formats.clients.retry import ServerUnreachable

Losses = Callable[[BaseException], bool]
"""Whether a client connects anew after that error."""
_LOST = (OSError, WebSocketException, EOFError, HTTPException, ServerUnreachable, Closed, Busy, StorageUnavailable)
_ENDED = ("amqp:connection:forced", "amqp:link:detach-forced")
"""What a server that stops says over AMQP."""
_BUSY = 503
_AWAY_STATUSES = (421, 503, 504)
_AWAY = (OutcomeUnknown, NotPrimary, TimeoutError)
AWAY_CONDITIONS = (*_ENDED, "amqp:internal-error", "amqp:not-found")
"""A server of a home says over AMQP that it cannot append, or does not know whether it has, as an internal error."""


def nothing(_: BaseException) -> bool:
    """The server stays: each lost connection is a fault."""
    return False


def too_busy(error: BaseException) -> bool:
    """The server has no room at the moment, and says so."""
    return _status(error) == _BUSY or isinstance(error, Overloaded | Busy)


def server_ended(error: BaseException) -> bool:
    """The server went away, and nothing worse: one that is there and does not answer is at fault."""
    if status := _status(error):
        return status == _BUSY
    if isinstance(error, OutcomeUnknown) and error.__cause__ is not None:
        error = error.__cause__  # how its last attempt ended
    if isinstance(error.reason if isinstance(error, URLError) else error, TimeoutError):
        return False
    return isinstance(error, _LOST) or (isinstance(error, AmqpError) and error.condition in _ENDED)


def primary_ended(error: BaseException) -> bool:
    """The primary, or the home, went away: the same, and what only servers of a home answer."""
    if isinstance(error, OutcomeUnknown) and isinstance(error.__cause__, UnexpectedAnswer):
        error = error.__cause__
    if status := error.status if isinstance(error, UnexpectedAnswer) else _status(error):
        return status in _AWAY_STATUSES
    if isinstance(error, AmqpError):
        return error.condition in AWAY_CONDITIONS
    if isinstance(error, AssertionError | ServerFault):
        return "InternalError" in str(error) or "outcome_unknown" in str(error)
    has_timed_out = isinstance(error, URLError) and isinstance(error.reason, TimeoutError)
    return has_timed_out or isinstance(error, _AWAY) or server_ended(error)


def _status(error: BaseException) -> int:
    """Of an answer over HTTP, which is let go; 0 where it is none."""
    if not isinstance(error, HTTPError):
        return 0
    with error:
        return error.code
