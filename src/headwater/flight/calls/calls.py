"""Calls to a server at one or several addresses, tried in turn: each must have the same log, and all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from ...core.access import Forbidden
from ...core.errors import EventLogError, InvalidInput, PositionOfOtherIncarnation
from ...core.extent import Extent
from ...core.log import LogInfo
from ...formats.clients.endpoints import Endpoints
from ..wire import HEAD, HEADS, ActionShape, HeadsBody, LogBody
from .address import BulkAddress
from .connection import FlightConnection
from .seen import NotHereYet, OtherEverywhere, SeenLogs
from .tries import Tries

T = TypeVar("T")
Looked = TypeVar("Looked", Extent, LogInfo)

FAILURES = (flight.FlightError, pa.ArrowException, EventLogError)
"""Errors of a call that must be passed to `Tries.failed`."""


class Calls:
    """Calls one server. Thread-safe."""

    def __init__(self, address: BulkAddress) -> None:
        """Sends nothing yet."""
        self.address = address
        each = address.each
        self._connections = [FlightConnection(one, is_single=len(each) == 1) for one in each]
        self._endpoints = Endpoints(self._connections)
        self.seen = SeenLogs()

    @property
    def is_single(self) -> bool:
        """Whether there is only one address. If so, no extra requests are made."""
        return self._endpoints.is_single

    @property
    def url(self) -> str:
        """The URL in use."""
        return self._endpoints.current.url

    def close(self) -> None:
        """Close the connections and refuse further calls."""
        for connection in self._connections:
            connection.close()

    def tries(self, *, may_lag: bool = True, is_read: bool = False) -> Tries:
        """The attempts of one call; see Tries."""
        return Tries(self._endpoints, self.address.retries, may_lag=may_lag, is_read=is_read)

    def call(
        self,
        call: Callable[[FlightConnection], T],
        *,
        log: str | None = None,
        has_positions: bool = True,
        is_idempotent: bool = True,
        is_untouched: Callable[[], bool] = lambda: True,
    ) -> T:
        """The call's answer; retries while the server is unreachable, if that is safe, or wants a new login.

        With several addresses, give `log` if the call itself does not name the log: the client then first checks that a
        server has the whole log. If all of them have another log, the call is made anyway, unless it `has_positions` of
        the old one. `is_untouched` returns whether a refused call has changed nothing.

        Raises the errors of the core, ServerUnreachable, Busy and ServerFault.
        """
        try:
            return self._call(call, log, is_idempotent, is_untouched)
        except OtherEverywhere:
            if log is None or has_positions:
                raise
            self.seen.forget(log)
            return self._call(call, log, is_idempotent, is_untouched)

    def _call(
        self,
        call: Callable[[FlightConnection], T],
        log: str | None,
        is_idempotent: bool,
        is_untouched: Callable[[], bool],
    ) -> T:
        tries = self.tries(may_lag=log is None)
        while True:
            connection = tries.begin()
            is_begun = False
            try:
                if log is not None and not self.is_single:
                    self._check(connection, log)
                is_begun = True
                answer = call(connection)
            except FAILURES as error:
                tries.failed(error, is_idempotent=is_idempotent or not is_begun, is_untouched=is_untouched)
            else:
                tries.succeeded()
                return answer

    def once(self, call: Callable[[FlightConnection], T]) -> T:
        """Like `call`, but tried once, at the address in use."""
        tries = self.tries()
        try:
            return call(tries.begin())
        except FAILURES as error:
            raise tries.given_up(error) from None

    def reached(self, log: str, head: int) -> None:
        """Record that an append at the address in use ended at that head."""
        self.seen.reached(self._endpoints.current, log, head)

    def look(self, shape: ActionShape[LogBody, Looked], log: str) -> Looked:
        """An action's answer about the log as it is now, never older than what was seen before."""

        def look(connection: FlightConnection) -> Looked:
            failures = connection.failures
            answer = connection.act(shape, LogBody(log))
            if not self.is_single:
                self.seen.check(connection, failures, log, answer)
            return answer

        try:
            return self.call(look)
        except OtherEverywhere:  # the answer names the current incarnation
            self.seen.forget(log)
            return self.call(look)

    def look_at_many(self, logs: tuple[str, ...]) -> dict[str, Extent]:
        """The extents of these logs at the address in use, without logs that are missing or incomplete there.

        Empty for a 0.1.0 server, which lacks the action.
        """

        def look(connection: FlightConnection) -> dict[str, Extent]:
            failures = connection.failures
            found = connection.act(HEADS, HeadsBody(logs)).heads
            return {log: extent for log, extent in found.items() if self._is_whole(connection, failures, log, extent)}

        try:
            return self.call(look)
        except InvalidInput as error:
            if error.where != "action":
                raise
            return {}

    def _is_whole(self, connection: FlightConnection, failures: int, log: str, extent: Extent) -> bool:
        if self.is_single:
            return True
        try:
            self.seen.check(connection, failures, log, extent)
        except (PositionOfOtherIncarnation, NotHereYet):
            return False
        return True

    def _check(self, connection: FlightConnection, log: str) -> None:
        if self.seen.is_checked(connection, log):
            return
        failures = connection.failures
        try:
            self.seen.check(connection, failures, log, connection.act(HEAD, LogBody(log)))
        except flight.FlightError as error:
            if not isinstance(connection.error_of(error), Forbidden):
                raise
            self.seen.excuse(connection, failures, log)
