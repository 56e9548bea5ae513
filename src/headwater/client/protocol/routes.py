"""The requests to a log and to a server, each defined once for all clients. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from ...core.condition import AppendCondition, check_condition
from ...core.consumer import Consumer, check_consumer_key
from ...core.event import Event
from ...core.limits import APPEND_BYTES_MAX, check_append
from ...core.log import AppendResult, ArrowBatch, LogInfo
from ...core.query import Query
from ...core.settings import SYSTEM_LOG, LogSettings, check_log_name
from ...core.workers import check_worker_key
from ...formats import packed
from . import wire
from .identity import Identity, incarnation_of
from .request import JSON, Request, Route, UnderWay

CREATED = 201
EVENT_STREAM = "text/event-stream"


class LogRoutes:
    """The requests to one log; each calls the method of EventLog of the same name, if there is one.

    An invalid request raises before it is sent.
    """

    def __init__(self, name: str) -> None:
        """Raises InvalidLogName."""
        self.name = name if name == SYSTEM_LOG else check_log_name(name)
        self._path = path = f"/logs/{name}"
        self._identity = Identity(name)
        self._append = Route("POST", f"{path}/append", packed.MEDIA_TYPE)
        self._read = Route("POST", f"{path}/read", accept=packed.MEDIA_TYPE_WITH_END)
        self._head = Request(Route("GET", f"{path}/head"), b"", name, wire.head, self._identity)

    def info(self) -> Request[LogInfo]:
        return Request(Route("GET", self._path), b"", self.name, wire.info, self._identity)

    def append(
        self, events: Sequence[Event], condition: AppendCondition | None, partition: int | None
    ) -> Request[AppendResult]:
        """See EventLog. The server checks the log's own limit for one event."""
        if condition is not None:
            check_condition(condition)
        columns = check_append(events, APPEND_BYTES_MAX)
        body = wire.append_body(columns, condition, partition)
        ids = columns.ids
        return Request(self._append, body, self.name, wire.append_result, self._identity, appended_ids=lambda: ids)

    def append_batch(
        self, batch: ArrowBatch, condition: AppendCondition | None, partition: int | None
    ) -> Request[AppendResult]:
        """See EventLog. Needs pyarrow."""
        from ...formats.arrow.columns import batch_of
        from ...formats.arrow.events import columns_of
        from ...formats.arrow.stream import stream_of_batch

        if condition is not None:
            check_condition(condition)
        checked = batch_of(columns_of(batch, LogSettings(event_bytes_max=APPEND_BYTES_MAX)))
        route = Route("POST", f"{self._append.path}{wire.append_parameters(condition, partition)}", wire.ARROW)
        body = stream_of_batch(checked)
        ids = checked.column("id")
        return Request(route, body, self.name, wire.append_result, self._identity, appended_ids=ids.to_pylist)

    def read(self, asked: wire.ReadBody, under_way: UnderWay | None = None) -> Request[None]:
        """See EventLog; the answer is for `PagedRead`."""
        body = wire.encode(asked)
        return Request(self._read, body, self.name, _as_it_comes, self._identity, under_way=under_way)

    def read_one(self, asked: wire.ReadBody, under_way: UnderWay | None = None) -> Request[None]:
        """The first event of such a read, if there is one, as a JSON array."""
        one = wire.encode(msgspec.structs.replace(asked, limit=1))
        route = Route("POST", self._read.path)
        return Request(route, one, self.name, _as_it_comes, self._identity, under_way=under_way)

    def head(self) -> Request[int]:
        return self._head

    def subscribe(
        self, query: Query, after: int, partition: int | None, heartbeat_s: float | None = None
    ) -> Request[None]:
        """Server-Sent Events after that number; the answer is for `Follower`."""
        options = {"query": wire.encode(wire.query_json(query)).decode(), "after": str(after)}
        if partition is not None:
            options["partition"] = str(partition)
        if heartbeat_s is not None:
            options["heartbeat"] = f"{heartbeat_s:g}"
        route = Route("GET", f"{self._path}/subscribe?{urlencode(options)}", accept=EVENT_STREAM)
        return Request(route, b"", self.name, _as_it_comes, self._identity)

    def register_consumer(self, owner: str, component: str, after: int | None, drops_at_most: int) -> Request[Consumer]:
        asked = {} if after is None else {"after": after}
        return self._consumer("PUT", owner, component, dropping(drops_at_most), asked)

    def acknowledge(self, owner: str, component: str, sequence_number: int, epoch: int | None) -> Request[Consumer]:
        asked = {"sequence_number": sequence_number, "epoch": epoch}
        return self._consumer("POST", owner, component, "/acknowledge", asked)

    def reset_consumer(self, owner: str, component: str, after: int, drops_at_most: int) -> Request[Consumer]:
        request = self._consumer("POST", owner, component, f"/reset{dropping(drops_at_most)}", {"after": after})
        return msgspec.structs.replace(request, is_sent_once=True)

    def unregister_consumer(self, owner: str, component: str, drops_at_most: int) -> Request[None]:
        path = self._consumer_path(owner, component) + dropping(drops_at_most)
        return Request(Route("DELETE", path), b"", self.name, wire.nothing, self._identity, is_sent_once=True)

    def consumers(self) -> Request[list[Consumer]]:
        return Request(Route("GET", f"{self._path}/consumers"), b"", self.name, wire.consumers, self._identity)

    def beat(self, group: str, worker: str, body: wire.BeatBody) -> Request[wire.Holding]:
        """A worker of a group is alive, and asks for its partitions."""
        route = Route("PUT", self._worker_path(group, worker))
        return Request(route, wire.encode(body), self.name, wire.holding, self._identity, waits=body.wait_ms > 0)

    def done(self, group: str, worker: str, body: wire.DoneBody) -> Request[None]:
        """Acknowledge a part of a partition."""
        route = Route("POST", f"{self._worker_path(group, worker)}/acknowledge")
        return Request(route, wire.encode(body), self.name, wire.nothing, self._identity)

    def leave(self, group: str, worker: str, version: int | None = None) -> Request[None]:
        """The worker ends, unless another process has taken its name since that version."""
        query = "" if version is None else f"?version={version}"
        route = Route("DELETE", self._worker_path(group, worker) + query)
        return Request(route, b"", self.name, wire.nothing, self._identity)

    def trim(self, below: int) -> Request[int]:
        return Request(
            Route("POST", f"{self._path}/trim"), wire.encode({"below": below}), self.name, wire.trimmed, self._identity
        )

    def _consumer(self, method: str, owner: str, component: str, verb: str, asked: dict[str, Any]) -> Request[Consumer]:
        path = self._consumer_path(owner, component) + verb
        return Request(Route(method, path), wire.encode(asked), self.name, wire.consumer, self._identity)

    def _worker_path(self, group: str, worker: str) -> str:
        check_worker_key(group, worker)
        return f"{self._path}/groups/{quote(group, safe='')}/workers/{quote(worker, safe='')}"

    def _consumer_path(self, owner: str, component: str) -> str:
        check_consumer_key(owner, component)
        return f"{self._path}/consumers/{quote(owner, safe='')}/{quote(component, safe='')}"


def logs() -> Request[list[str]]:
    """The names of the logs that the user may read, sorted."""
    return Request(Route("GET", "/logs"), b"", "", wire.names)


def head_of(identity: Identity) -> Request[tuple[int, str]]:
    """The head of a log and its incarnation: asked of an address before using the log there."""
    return Request(Route("GET", f"/logs/{identity.log}/head"), b"", identity.log, wire.head_and_incarnation)


def ensure(name: str, settings: LogSettings | None) -> Request[bool]:
    """Create a log unless it exists. Returns whether it is new."""
    body = b"" if settings is None else wire.encode(settings)
    return Request(_of_log("PUT", name), body, name, lambda answer: answer.status == CREATED)


def change(name: str, settings: LogSettings, drops_at_most: int) -> Request[LogInfo]:
    """Change the settings of a log."""
    route = _of_log("PATCH", name, dropping(drops_at_most))
    return Request(route, wire.encode(settings), name, wire.info, is_sent_once=True)


def incarnation(name: str) -> Request[str | None]:
    """The incarnation of a log; None of a server that deletes by the name alone (0.1.x)."""
    return Request(Route("GET", f"/logs/{check_log_name(name)}/head"), b"", name, incarnation_of)


def delete(name: str, incarnation: str | None) -> Request[None]:
    """Delete that incarnation of a log; without one, any log of that name, and only once."""
    query = "" if incarnation is None else f"?incarnation={quote(incarnation, safe='')}"
    return Request(_of_log("DELETE", name, query), b"", name, wire.nothing, is_sent_once=incarnation is None)


def dropping(at_most: int) -> str:
    """The query parameter for the most events that a request may drop; without it none may be dropped."""
    return f"?drops_at_most={at_most}" if at_most else ""


def _of_log(method: str, name: str, query: str = "") -> Route:
    return Route(method, f"/logs/{check_log_name(name)}{query}", JSON)


def _as_it_comes(answer: object) -> None:
    """The decoder of a streamed answer, which has no meaning as a whole."""
