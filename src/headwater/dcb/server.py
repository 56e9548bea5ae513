"""The ASGI application: maps routes to handlers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.resources import files

from ..core.access import Guard
from ..core.errors import LogNotFound
from ..core.loop.scheduler import FairScheduler
from ..core.readers import Readers
from ..core.store import LogStore
from ..core.workers import Workers
from ..http import Exchange, FrontEnd, Routes
from ..http.front_end import Handler
from . import benchmark, consumers, logs, workers
from .appends import append
from .counts import count, histograms, terms
from .host import Host
from .reads import read, subscribe
from .reads.one_event import EventForms, OneEvent

BODY_BYTES_MAX = 96 * 1024 * 1024
"""The largest append body: an append may have 64 MiB, base64 adds a third, and JSON adds its syntax."""
READ_BYTES_MAX = 4 * 1024 * 1024
"""The largest read body: a query with the maximum number of terms, at more than 200 characters each."""
SMALL_BYTES_MAX = 64 * 1024
"""The largest body of all other requests, which contain a few numbers and names."""

_logger = logging.getLogger("headwater.dcb")
_OPENAPI = files(__package__).joinpath("openapi.yaml").read_bytes()


class Application(FrontEnd[Host, Exchange]):
    """DCB over HTTP for the logs of one store, on one event loop. See FrontEnd."""

    def __init__(
        self,
        store: LogStore,
        guard: Guard,
        *,
        body_bytes_max: int = BODY_BYTES_MAX,
        turns: FairScheduler | None = None,
        readers: Readers | None = None,
        forms: EventForms | None = None,
        workers: Workers | None = None,
        stale: Callable[[str], str | None] | None = None,
        lacking: Callable[[str], Exception] = LogNotFound,
    ) -> None:
        """`guard` checks permissions. An append over `body_bytes_max` is refused with 413 and not read further.

        `turns` schedules the loop's time among readers; `readers` records subscriptions; `forms` are the forms of an
        event from other packages. `workers` keeps the groups; without it there are none. `stale` returns why a log
        cannot be read at present; `lacking` returns the error for a log that is not here.
        """
        self.routes: Routes[Handler[Host, Exchange]] = Routes()
        one_event = OneEvent(forms or {})
        table: list[tuple[str, str, Handler[Host, Exchange]]] = [
            *_TABLE,
            ("GET", "/logs/{log}/events/{number}", one_event),
        ]
        for method, path, handler in table:
            has_parameters = handler is one_event or handler in _WITH_PARAMETERS
            limit = min(body_bytes_max, _BODY_BYTES_MAX.get(handler, SMALL_BYTES_MAX))
            self.routes.add(method, path, handler, body_bytes_max=limit, has_parameters=has_parameters)
        host = Host(store, guard, turns, readers, workers)
        host.stale, host.lacking = stale, lacking
        self.traffic = host.logs.traffic
        """Counts of events appended and read, subscriptions included."""
        super().__init__(host, self.routes.find, _logger, Exchange)


async def _openapi(host: Host, exchange: Exchange) -> None:
    await exchange.answer(200, _OPENAPI, b"application/yaml")


_CONSUMER = "/logs/{log}/consumers/{owner}/{component}"
_WORKER = "/logs/{log}/groups/{group}/workers/{worker}"
_TABLE: list[tuple[str, str, Handler[Host, Exchange]]] = [
    ("GET", "/openapi.yaml", _openapi),
    ("GET", "/logs", logs.list_logs),
    ("GET", "/logs/{log}", logs.get),
    ("PUT", "/logs/{log}", logs.create),
    ("PATCH", "/logs/{log}", logs.change),
    ("DELETE", "/logs/{log}", logs.delete),
    ("POST", "/logs/{log}/append", append.append),
    ("POST", "/logs/{log}/events", append.append_cloudevents),
    ("POST", "/logs/{log}/read", read.read),
    ("POST", "/logs/{log}/count", count.count),
    ("POST", "/logs/{log}/histogram", histograms.histogram),
    ("POST", "/logs/{log}/event-histogram", histograms.event_histogram),
    ("GET", "/logs/{log}/terms", terms.list_terms),
    ("GET", "/logs/{log}/position", histograms.position),
    ("GET", "/logs/{log}/segments", logs.list_segments),
    ("GET", "/logs/{log}/head", read.head),
    ("GET", "/logs/{log}/subscribe", subscribe.subscribe),
    ("POST", "/logs/{log}/trim", logs.trim),
    ("GET", "/logs/{log}/consumers", consumers.list_consumers),
    ("PUT", _CONSUMER, consumers.register),
    ("DELETE", _CONSUMER, consumers.unregister),
    ("POST", f"{_CONSUMER}/acknowledge", consumers.acknowledge),
    ("POST", f"{_CONSUMER}/reset", consumers.reset),
    ("PUT", _WORKER, workers.beat),
    ("DELETE", _WORKER, workers.leave),
    ("POST", f"{_WORKER}/acknowledge", workers.acknowledge),
    ("GET", "/dcb/{log}/read", benchmark.read),
    ("POST", "/dcb/{log}/append", benchmark.append),
]

_BODY_BYTES_MAX: dict[Handler[Host, Exchange], int] = {
    append.append: BODY_BYTES_MAX,
    append.append_cloudevents: BODY_BYTES_MAX,
    benchmark.append: BODY_BYTES_MAX,
    read.read: READ_BYTES_MAX,
    count.count: READ_BYTES_MAX,
    histograms.histogram: READ_BYTES_MAX,
    histograms.event_histogram: READ_BYTES_MAX,
}
_WITH_PARAMETERS = frozenset({
    append.append, subscribe.subscribe, benchmark.read, terms.list_terms, histograms.position, logs.list_segments,
    workers.leave, logs.change, logs.delete, consumers.register, consumers.reset, consumers.unregister,
})  # fmt: skip
"""The handlers that check query parameters themselves."""
