# Made from aio/log.py by python -m tests.client.unasync: change that file, not this one.
"""A log on a server: the methods of `core.EventLog`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ...core.condition import AppendCondition
from ...core.consumer import Consumer
from ...core.event import Event
from ...core.log import AppendResult, ArrowBatch, LogInfo
from ...core.query import ALL, Query
from ..protocol import wire
from ..protocol.pages import PagedRead
from ..protocol.routes import LogRoutes
from ..protocol.share import BATCH_EVENTS, Share
from .primitives import in_worker
from .reading import RemoteReading
from .subscription import RemoteSubscription
from .transport import Transport
from .work import Work


class RemoteLog:
    """One log of a server. Safe to use from any thread. Its methods raise what `core.EventLog` says, and also
    ServerUnreachable, UnexpectedAnswer, Unauthenticated, Forbidden and LogNotFound.
    """

    def __init__(self, transport: Transport, name: str) -> None:
        self._routes = LogRoutes(name)
        self.name = name
        self._transport = transport

    def info(self) -> LogInfo:
        """See EventLog."""
        return self._transport.call(self._routes.info())

    def append(
        self,
        events: Sequence[Event],
        condition: AppendCondition | None = None,
        *,
        partition: int | None = None,
    ) -> AppendResult:
        """See EventLog. While the server is unreachable or overloaded, the append is repeated, with the same ids.

        Raises ServerUnreachable if it was never sent. Raises OutcomeUnknown if it ends with neither an acknowledgement
        nor a refusal by the server (no answer, a proxy's answer, a 500), or with a refusal that does not cover an
        earlier attempt whose answer was lost: the events may or may not be in the log. To settle it, append them again
        with the same ids, which are in the error's `ids`. The same holds if the call is interrupted.
        """
        return self._transport.call(self._routes.append(events, condition, partition))

    def append_batch(
        self,
        batch: ArrowBatch,
        condition: AppendCondition | None = None,
        *,
        partition: int | None = None,
    ) -> AppendResult:
        """See EventLog. Repeated like `append`, with the same ids. Needs pyarrow."""
        request = in_worker(self._routes.append_batch, batch, condition, partition)  # it checks the whole batch
        return self._transport.call(request)

    def read(
        self,
        query: Query = ALL,
        *,
        from_: int | None = None,
        after: int | None = None,
        backwards: bool = False,
        limit: int | None = None,
        partition: int | None = None,
        upto: int | None = None,
    ) -> RemoteReading:
        """See EventLog. The events stream, in constant memory; the head is available at once.

        `upto` is the last number to read, inclusive; None for the head.
        """
        asked = wire.ReadBody(wire.query_json(query), from_, after, backwards, limit, partition, upto)
        return RemoteReading(self._transport, PagedRead(self._routes, asked)).begin()

    def head(self) -> int:
        """See EventLog."""
        return self._transport.call(self._routes.head())

    def subscribe(
        self, query: Query = ALL, *, after: int | None = None, partition: int | None = None
    ) -> RemoteSubscription:
        """See EventLog. It reconnects at its cursor; if a trim overtook that, it raises PositionTrimmed. If reads work
        but no stream does for the client's `retry_s`, it raises ServerUnreachable; you may ask again.
        """
        return RemoteSubscription(self._transport, self._routes, query, after, partition).begin()

    def register_consumer(
        self, owner: str, component: str, *, after: int | None = None, drops_at_most: int = 0
    ) -> Consumer:
        """See EventLog."""
        return self._transport.call(self._routes.register_consumer(owner, component, after, drops_at_most))

    def acknowledge(
        self,
        owner: str,
        component: str,
        sequence_number: int,
        *,
        epoch: int | None = None,
    ) -> Consumer:
        """See EventLog."""
        return self._transport.call(self._routes.acknowledge(owner, component, sequence_number, epoch))

    def reset_consumer(self, owner: str, component: str, after: int, *, drops_at_most: int = 0) -> Consumer:
        """See EventLog."""
        return self._transport.call(self._routes.reset_consumer(owner, component, after, drops_at_most))

    def unregister_consumer(self, owner: str, component: str, *, drops_at_most: int = 0) -> None:
        """See EventLog."""
        self._transport.call(self._routes.unregister_consumer(owner, component, drops_at_most))

    def consumers(self) -> list[Consumer]:
        """See EventLog."""
        return self._transport.call(self._routes.consumers())

    def work(
        self,
        group: str,
        *,
        worker: str | None = None,
        query: Query = ALL,
        lease_s: float = 10.0,
        start: Literal["earliest", "latest"] | None = None,
        batch_events: int = BATCH_EVENTS,
    ) -> Work:
        """Share the partitions of the log with all workers of a group and its AMQP receivers.

        `worker` is a unique name, generated by default. A worker not heard of for `lease_s` is considered dead. `start`
        is where a new group begins, by default as in the log's settings. A batch has at most `batch_events` events, 1
        to 10,000. Raises InvalidInput.
        """
        return Work(self._transport, Share(self._routes, group, worker, query, lease_s, start, batch_events))

    def trim(self, below: int) -> int:
        """See EventLog."""
        return self._transport.call(self._routes.trim(below))
