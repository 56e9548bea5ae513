# Made from aio/subscription.py by python -m tests.client.unasync: change that file, not this one.
"""A subscription over HTTP by a thread: see `protocol.follow`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Self

from msgspec.structs import replace

from ...core.errors import EventLogError, LogNotFound
from ...core.event import SequencedEvent
from ...core.query import Query
from ..protocol.follow import Follower, HeartbeatMissing
from ..protocol.request import UnderWay
from ..protocol.routes import LogRoutes
from ..protocol.terms import PASSING, ConnectionLost, DeadlinePassed
from .primitives import Event, Subscription, wait
from .reading import RemoteReading
from .transport import Stream, Transport

LASTING_S = 5.0
"""A stream that lasts this long is considered working, even if it ends, because some proxies end idle streams before
the first heartbeat.
"""


class RemoteSubscription(Subscription):
    """Iterate it for the events; at the end of the log it waits for new ones, or until it is closed.

    Raises PositionTrimmed if a trim overtook its cursor, so that no event is skipped silently. A context manager.
    """

    def __init__(
        self,
        transport: Transport,
        routes: LogRoutes,
        query: Query,
        after: int | None,
        partition: int | None,
    ) -> None:
        """Call `begin` before use."""
        super().__init__(after or 0)
        self._transport = transport
        self._follower = Follower(routes, query, after, partition, transport.terms.timeout_s)
        self._stream: Stream | None = None
        self._under_way = UnderWay()
        """The stream whose head is awaited."""
        self._reading: RemoteReading | None = None
        """The latest catch-up read."""
        self._closing = Event()
        self._attempts = transport.terms.attempts()
        """The attempts to follow the log, until a stream delivers a number, or lasts."""
        self._began_at = 0.0
        """When the stream began, by the monotonic clock."""

    def begin(self) -> Self:
        """Check the position and the query. Raises the same errors as `core.EventLog.read`."""
        reading = RemoteReading(self._transport, self._follower.check()).begin()
        reading.next_page()
        return self

    def close(self) -> None:
        """End it, from any thread: a waiting iteration stops."""
        super().close()
        self._closing.set()
        self._under_way.close()
        if self._reading is not None:
            self._reading.close()
        self._drop_stream()

    def _next_events(self, timeout_s: float | None) -> Sequence[SequencedEvent] | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.is_closed:
            try:
                return self._catch_up_or_follow(deadline)
            except LogNotFound:
                break  # the log was deleted, so there are no more events
            except PASSING as error:
                self._give_up(error)
                is_patient = isinstance(error, HeartbeatMissing) and self._follower.may_wait_longer()
                if not self.is_closed and not is_patient:
                    self._wait_after(error, deadline)
        return None

    def _wait_after(self, error: OSError | EventLogError, deadline: float | None) -> None:
        try:
            pause_s = self._transport.targets.pause_s(self._attempts, error)
        except BaseException:
            self._attempts.succeeded()  # a repeated call starts with full patience again
            raise
        left_s = _left_s(deadline)
        wait(self._closing, pause_s if left_s is None else min(pause_s, left_s))

    def _catch_up_or_follow(self, deadline: float | None) -> Sequence[SequencedEvent]:
        if self._follower.is_ahead(self.cursor):
            self._drop_stream()
        if self._stream is None and ((events := self._catch_up()) or _left_s(deadline) == 0):
            return events
        try:
            if self._stream is None:
                self._follow(deadline)
            return self._await_events(deadline)
        except DeadlinePassed:
            return self._catch_up()  # events that are durable by now, even if the stream has not delivered them

    def _catch_up(self) -> Sequence[SequencedEvent]:
        reading = self._reading = RemoteReading(self._transport, self._follower.catch_up(self.cursor))
        if self.is_closed:  # by another thread, meanwhile
            return ()
        reading.begin()
        events = reading.rest()
        if self.is_closed:  # the read may be incomplete
            return ()
        if reading.has_waited:
            self._attempts.succeeded()  # it was unreachable for streams, too; otherwise reads prove nothing about them
        self.cursor = self._follower.caught_up(self.cursor, events, reading.head)
        return events

    def _follow(self, deadline: float | None) -> None:
        request = replace(self._follower.follow(self.cursor), deadline=deadline, under_way=self._under_way)
        stream = self._transport.open(request)
        try:
            self._follower.begin(stream.answer)
        except OSError as error:
            stream.give_up(error)
            raise
        except BaseException:
            stream.close()
            raise
        self._stream, self._began_at = stream, time.monotonic()
        if self.is_closed:  # by another thread, meanwhile
            self._drop_stream()

    def _await_events(self, deadline: float | None) -> Sequence[SequencedEvent]:
        """The next events of the stream. Raises DeadlinePassed, and ConnectionLost at its end."""
        silent_at = time.monotonic() + self._follower.silence_s
        while (stream := self._stream) is not None:
            left_s = _left_s(silent_at if deadline is None else deadline)
            try:
                if deadline is None and left_s == 0:  # data arrives continuously
                    raise TimeoutError
                piece = stream.read(left_s)
            except TimeoutError:
                if deadline is None:  # the connection is dead
                    raise HeartbeatMissing("the subscription received neither events nor heartbeats") from None
                raise DeadlinePassed("no event arrived") from None
            if not piece:
                break
            self.cursor, events = self._follower.receive_data(self.cursor, piece)
            if self._follower.is_alive:
                silent_at = time.monotonic() + self._follower.silence_s
            if self._follower.has_moved:
                self._attempts.succeeded()
            if events:
                return events
        raise ConnectionLost("the subscription ended")

    def _give_up(self, error: OSError | EventLogError) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.give_up(error)
            lasted = self._follower.has_spoken and time.monotonic() - self._began_at >= LASTING_S
            if lasted and not isinstance(error, HeartbeatMissing):
                self._attempts.succeeded()

    def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


def _left_s(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
