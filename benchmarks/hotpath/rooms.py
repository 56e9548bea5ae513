"""The other ways in: what an event costs the server that comes as a FutoIn call or as a notification."""

from __future__ import annotations

from contextlib import closing

from ..futoin.servers import HEADWATER, Servers
from ..measure import Sample, stopwatch
from ..stores.headwater_server import HeadwaterServer
from ..webhook_load import Load, run
from .rows import Place, Row
from .slices import Cost

SECONDS = 4
NOTIFICATIONS = 3000


def _once(sample: Sample) -> Cost:
    """One long slice: the load is a process of its own."""
    assert sample.cpu_us is not None
    return Cost(sample.cpu_us, sample.cpu_us, sample.value)


def futoin(place: Place) -> Cost:
    """64 clients over WebSocket, each waiting for its answer."""
    with Servers(place.directory / "futoin", [HEADWATER]) as servers:
        return _once(servers[HEADWATER].sample("add", 64, SECONDS))


def notifications(place: Place) -> Cost:
    """A flood from 8 publishers, to one subscriber."""
    load = Load(events=NOTIFICATIONS, subscribers=1, publishers=8)
    with closing(HeadwaterServer(place.directory / "notifications")) as server, stopwatch(server.pid) as watch:
        report = run(server.url, load)
    assert report.delivered == load.events
    used = watch.cpu_seconds / load.events * 1e6
    return Cost(used, used, load.events / report.seconds)


ROWS = (
    Row("futoin", "FutoIn addEvent, 64 clients, the server", futoin),
    Row("notifications", "notifications to one webhook, 8 publishers, the server", notifications, per_second_min=4000),
)
