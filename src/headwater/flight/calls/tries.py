"""One call, tried at one address after another until one answers or the retries are used up."""

from __future__ import annotations

import time
from collections.abc import Callable

from ...core import errors as core
from ...core.access import Unauthenticated
from ...formats.clients import retry
from ...formats.clients.endpoints import Endpoints
from ...formats.clients.retry import Attempts, ServerUnreachable
from ..errors import Busy
from .connection import FlightConnection
from .seen import NotHereYet, OtherEverywhere

PASSING = (ServerUnreachable, Busy, *retry.PASSING)
"""Errors that may pass shortly."""
GOES_ELSEWHERE = (ServerUnreachable, core.Closed, core.StorageUnavailable)
"""Errors after which the next address is tried. The failed address is not used for a while. NotPrimary is a
StorageUnavailable.
"""
DOUBTFUL = (core.LogNotFound, core.PositionOfOtherIncarnation, NotHereYet)
"""Errors of a healthy replica that has not caught up yet. They count only if every address agrees.

While one address is unreachable or busy, it is unknown whether a log is gone or has been recreated.
"""
CATCHES_UP_S = 2.0
"""How long all addresses may lag behind."""


class Tries:
    """The attempts of one call. Not thread-safe."""

    def __init__(
        self, endpoints: Endpoints[FlightConnection], retries: int, *, may_lag: bool, is_read: bool = False
    ) -> None:
        """`may_lag`: whether a position above the head may be one that an address has not received yet.

        `is_read`: any address can serve it, so a busy one is left for another.
        """
        self._endpoints, self._may_lag, self._is_read = endpoints, may_lag, is_read
        self._attempts = Attempts(retries=retries * len(endpoints))
        self._doubts: dict[FlightConnection, core.EventLogError] = {}
        """The current answers of addresses that may lag."""
        self._setback: core.EventLogError | None = None
        """Why the last round was inconclusive: an address was unreachable or busy, or they disagreed."""
        self._doubted_at: float | None = None

    def begin(self) -> FlightConnection:
        """The connection to use for the next attempt."""
        self._connection = self._endpoints.best(without=self._doubts)
        self._session = self._connection.session
        return self._connection

    def succeeded(self) -> None:
        """Record that the call was answered, at least in part."""
        self._connection.succeeded()
        self._attempts.succeeded()
        if self._doubts:
            self._endpoints.current = self._connection  # it knows more than the addresses that were asked earlier
            self._doubts.clear()
            self._doubted_at = None

    def failed(
        self,
        error: BaseException,
        *,
        is_idempotent: bool = True,
        is_untouched: Callable[[], bool] = lambda: True,
    ) -> None:
        """Wait until the call may be repeated. Raises the core's error if it may not.

        `is_untouched`: whether a refused call has changed nothing.
        """
        known = self._connection.error_of(error)
        if self._connection.is_closed:
            raise known from None
        if isinstance(known, Unauthenticated) and self._session and self._connection.log_in_again(self._session):
            return
        if self._endpoints.is_single or not (self._goes_elsewhere(known) or self._is_doubtful(known)):
            self._repeat(known, is_idempotent)
        else:
            self._turn(known, is_idempotent, is_untouched)

    def given_up(self, error: BaseException) -> core.EventLogError:
        """The core's error. The next call uses another address if that may help."""
        known = self._connection.error_of(error)
        if isinstance(known, GOES_ELSEWHERE) and not self._endpoints.is_single:
            self._endpoints.failed(self._connection, known)
        return known

    def _repeat(self, known: core.EventLogError, is_idempotent: bool) -> None:
        is_refused = isinstance(known, Busy)  # a call without a place has not done anything yet
        if not (is_idempotent or is_refused) or not isinstance(known, PASSING):
            raise known from None
        # While the log's index lags, each attempt moves a commit a bit further, so none counts as failed.
        self._attempts.failed(known, is_busy=is_refused or isinstance(known, core.Overloaded))

    def _turn(self, known: core.EventLogError, is_idempotent: bool, is_untouched: Callable[[], bool]) -> None:
        """Continue with another address."""
        is_refused = isinstance(known, core.NotPrimary)
        if self._is_doubtful(known):
            is_refused = True
            self._doubts[self._connection] = known
            self._doubted_at = self._doubted_at or time.monotonic()
        else:
            self._setback = known
            self._endpoints.failed(self._connection, known)
        if not (is_idempotent or (is_refused and is_untouched())):
            raise known from None
        if len(self._doubts) == len(self._endpoints):
            self._ask_all_again()
            return
        told, is_busy = self._unsettled(), isinstance(self._setback, Busy)
        pause_s = self._endpoints.turn_s(self._attempts, told, without=self._doubts, is_busy=is_busy)
        if pause_s > 0:
            self._doubts.clear()
            self._attempts.sleep(pause_s)

    def _ask_all_again(self) -> None:
        """Every address may lag. If they agree, or after a while, raise the error. Otherwise ask all again, because one
        may catch up.
        """
        assert self._doubted_at is not None
        said = list(self._doubts.values())
        are_others = all(isinstance(each, core.PositionOfOtherIncarnation) for each in said)
        is_settled = are_others or all(isinstance(each, core.LogNotFound) for each in said)
        known = next((each for each in reversed(said) if not isinstance(each, core.LogNotFound)), said[-1])
        if is_settled or time.monotonic() - self._doubted_at > CATCHES_UP_S:
            raise (_everywhere(known) if are_others else known) from None
        self._setback = known
        self._doubts.clear()
        self._attempts.failed(known)

    def _unsettled(self) -> core.EventLogError:
        """The final error if some addresses may lag and another one does not answer."""
        for doubt in self._doubts.values():
            if isinstance(doubt, NotHereYet):
                return doubt
        if self._setback is None or isinstance(self._setback, ServerUnreachable):
            said = [self._endpoints.problems() or str(self._setback or "")]
            said += [f"{connection.url}: {doubt}" for connection, doubt in self._doubts.items()]
            return ServerUnreachable(self._endpoints.urls, "; ".join(filter(None, said)))
        return self._setback

    def _goes_elsewhere(self, known: core.EventLogError) -> bool:
        return isinstance(known, GOES_ELSEWHERE) or (self._is_read and isinstance(known, Busy))

    def _is_doubtful(self, known: core.EventLogError) -> bool:
        is_ahead = isinstance(known, core.InvalidPosition) and known.where in ("after", "upto") and self._may_lag
        return is_ahead or isinstance(known, DOUBTFUL)


def _everywhere(error: core.EventLogError) -> OtherEverywhere:
    assert isinstance(error, core.PositionOfOtherIncarnation)
    made = OtherEverywhere(error.position, error.incarnation, error.first)
    made.args = error.args
    return made
