"""A log on a server, as a `core.EventLog`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from ..core.condition import AppendCondition, check_condition
from ..core.consumer import Consumer, check_consumer_key
from ..core.event import Event
from ..core.limits import APPEND_BYTES_MAX, check_append
from ..core.log import AppendResult, ArrowBatch, LogInfo
from ..core.query import ALL, Query
from ..core.settings import SYSTEM_LOG, LogSettings, check_log_name
from ..formats import packed
from . import wire
from .reading import RemoteReading
from .subscription import RemoteSubscription
from .transport import JSON, Transport


class RemoteLog:
    """One log of a server. Safe to use from any thread. Its methods raise what `core.EventLog` says, and besides
    ServerUnreachable, UnexpectedAnswer, Unauthenticated, Forbidden and LogNotFound.
    """

    def __init__(self, transport: Transport, name: str) -> None:
        self.name = name if name == SYSTEM_LOG else check_log_name(name)
        self._transport = transport
        self._path = f"/logs/{name}"

    def info(self) -> LogInfo:
        """See EventLog."""
        return wire.decode_info(self._call("GET", ""))

    def append(
        self,
        events: Sequence[Event],
        condition: AppendCondition | None = None,
        *,
        partition: int | None = None,
    ) -> AppendResult:
        """See EventLog. While the server is away or overloaded, the append is repeated, with the same ids.

        Raises ServerUnreachable if no answer came at all: then the events are in the log, or not; appending them again
        with the same ids settles it.
        """
        if condition is not None:
            check_condition(condition)
        # the log's own limit for one event is checked by the server, which knows it
        body = wire.append_body(check_append(events, APPEND_BYTES_MAX), condition, partition)
        return wire.append_result(self._call("POST", "/append", body, packed.MEDIA_TYPE))

    def append_batch(
        self, batch: ArrowBatch, condition: AppendCondition | None = None, *, partition: int | None = None
    ) -> AppendResult:
        """See EventLog. Repeated as `append`, with the same ids; only here pyarrow is needed."""
        from ..formats.arrow_columns import batch_of
        from ..formats.arrow_events import columns_of
        from ..formats.arrow_stream import stream_of_batch

        if condition is not None:
            check_condition(condition)
        checked = batch_of(columns_of(batch, LogSettings(event_bytes_max=APPEND_BYTES_MAX)))
        target = f"/append{wire.append_parameters(condition, partition)}"
        return wire.append_result(self._call("POST", target, stream_of_batch(checked), wire.ARROW))

    def read(
        self,
        query: Query = ALL,
        *,
        from_: int | None = None,
        after: int | None = None,
        backwards: bool = False,
        limit: int | None = None,
        partition: int | None = None,
    ) -> RemoteReading:
        """See EventLog. The events stream, in constant memory; the head is there at once."""
        asked = wire.ReadBody(wire.query_json(query), from_, after, backwards, limit, partition)
        return RemoteReading(self._transport, self.name, asked)

    def head(self) -> int:
        """See EventLog."""
        return wire.decode_head(self._call("GET", "/head")).head

    def subscribe(
        self, query: Query = ALL, *, after: int | None = None, partition: int | None = None
    ) -> RemoteSubscription:
        """See EventLog. It reconnects at its cursor; where a trim overtook it, it raises PositionTrimmed."""
        return RemoteSubscription(self._transport, self.name, query, after, partition)

    def register_consumer(self, owner: str, component: str, *, after: int | None = None) -> Consumer:
        """See EventLog."""
        return self._consumer("PUT", owner, component, "", {} if after is None else {"after": after})

    def acknowledge(self, owner: str, component: str, sequence_number: int, *, epoch: int | None = None) -> Consumer:
        """See EventLog."""
        asked = {"sequence_number": sequence_number, "epoch": epoch}
        return self._consumer("POST", owner, component, "/acknowledge", asked)

    def reset_consumer(self, owner: str, component: str, after: int) -> Consumer:
        """See EventLog."""
        return self._consumer("POST", owner, component, "/reset", {"after": after})

    def unregister_consumer(self, owner: str, component: str) -> None:
        """See EventLog."""
        self._call("DELETE", _consumer_path(owner, component))

    def consumers(self) -> list[Consumer]:
        """See EventLog."""
        return wire.decode_consumers(self._call("GET", "/consumers")).consumers

    def trim(self, below: int) -> int:
        """See EventLog."""
        return wire.decode_trimmed(self._call("POST", "/trim", wire.encode({"below": below}))).first_retained

    def _consumer(self, method: str, owner: str, component: str, verb: str, asked: dict[str, Any]) -> Consumer:
        path = _consumer_path(owner, component) + verb
        return wire.decode_consumer(self._call(method, path, wire.encode(asked)))

    def _call(self, method: str, path: str, body: bytes = b"", content_type: str = JSON) -> bytes:
        return self._transport.call(method, self._path + path, body, log=self.name, content_type=content_type)


def _consumer_path(owner: str, component: str) -> str:
    check_consumer_key(owner, component)
    return f"/consumers/{quote(owner, safe='')}/{quote(component, safe='')}"
