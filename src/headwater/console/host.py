"""The shared state of the console's handlers: sessions, logs and measurements."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.access import Guard
from ..core.loop.scheduler import FairScheduler
from ..core.store import LogStore
from ..core.watch.bus import Bus
from ..http import Host
from .live import Live
from .sessions import Sessions
from .settings import ConsoleSettings


class ConsoleHost(Host):
    """The guard and its sessions; the logs of one store, the bus, and the measurements."""

    def __init__(
        self,
        store: LogStore,
        guard: Guard,
        sessions: Sessions,
        bus: Bus,
        live: Live,
        turns: FairScheduler | None = None,
        wants: ConsoleSettings | None = None,
        lag: tuple[int, int] = (0, 0),
        ports: Mapping[str, int] | None = None,
    ) -> None:
        """`lag`: from how many events and ms behind a consumer lags, for the page to show; 0 means no bound.

        `ports`: the ports of other protocols, by name.
        """
        super().__init__(guard)
        self.wants, self.ports = wants or ConsoleSettings(), ports or {}
        self.lag_events, self.lag_ms = lag
        self.store, self.sessions, self.bus, self.live = store, sessions, bus, live
        self.turns = turns or FairScheduler()
