"""Metrics of single rooms for `/metrics`: each function reads one room's counters, at each scrape, in any thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import Metric

from ...amqp.container import Container
from ...cne.service import Service
from ...core.errors import StorageUnavailable
from ...core.followers import Follower, FollowerKind
from ...core.loop.memory import MemoryAccount
from ...core.store import LogStore
from ...core.watch.bus import Bus
from ...core.watch.notification_types import NotificationType
from ...core.watch.threads import Threads
from ...futoin.host import Statistics
from ...homes.roles.machine import Role
from ...management.notifications.consumers import ConsumerWatch
from ..bulk.plane import BulkPlane
from ..front.forwarding.forwarder import Forwarder
from ..httpd.server import HttpServer
from ..replicas.amqp import ReplicaAmqp
from ..replicas.membership import Membership
from ..replicas.replica import Replica
from .loop_watchdog import LoopWatchdog
from .metrics import counter, gauge, histogram
from .protocol_traffic import IN, OUT, TrafficNow

if TYPE_CHECKING:
    from ...storage.maintenance.scrub import Scrub

AMQP_COUNTERS = {
    "connections": "Connections accepted.",
    "connections_refused": "Connections refused above the maximum.",
    "origins_refused": "Connections refused for a PROXY header that no server of the home sent.",
    "faults": "Connections ended by a protocol error of the peer.",
    "links": "Attached links.",
    "links_refused": "Refused attaches.",
    "messages_received": "Messages received.",
    "messages_rejected": "Rejected messages.",
    "messages_sent": "Messages sent.",
    "messages_sent_again": "Messages sent again after their receiver released them.",
    "notifications_skipped": "Notifications lost for a listener by an internal error.",
}
"""The fields of AmqpStatistics."""
GROUP_SERIES_MAX = 1000
"""How many partitions of groups have their own metrics. The partitions that are furthest behind are chosen."""
STREAM_SERIES_MAX = 1000
"""How many streams have their own metrics."""
STANDINGS = ("delivering", "retrying", "suspended")


def storage_metrics(store: LogStore) -> Iterator[Metric]:
    """Disk space as seen by appends; empty for a store in memory."""
    from ...storage import Engine  # not needed by a server that keeps its logs in memory

    if not isinstance(store, Engine):
        return
    ahead_s = store.clock.ahead_ms / 1000
    yield gauge(
        "clock_ahead_seconds", "How far the clock is ahead of the trusted time; 0 while it is trusted.", ahead_s
    )
    yield from _scrub_metrics(store.scrub)
    try:
        standing, size_bytes = store.room.look(), store.room.size_bytes
    except (StorageUnavailable, OSError):  # the disk does not respond: readiness reports it
        return
    yield gauge("disk_size_bytes", "Size of the data directory's file system.", size_bytes)
    yield gauge("disk_free_bytes", "Free space for the data directory.", standing.free_bytes)
    yield gauge("disk_reserve_bytes", "Free space below which appends are refused.", standing.reserve_bytes)
    yield gauge("disk_low", "1 while appends are refused because the disk is full.", standing.is_low)


def _scrub_metrics(scrub: Scrub) -> Iterator[Metric]:
    place = scrub.place
    yield gauge("scrub_running", "1 while the scrub reads all files from the disk.", scrub.is_under_way)
    yield gauge(
        "scrub_proved_timestamp_seconds",
        "Time since which every file has been verified on the disk; 0 if never.",
        place.proved_at / 1000,
    )
    yield gauge("scrub_files", "Files verified by the current or last scrub pass.", place.files)
    yield gauge("scrub_bytes", "Bytes read by that pass.", place.bytes)
    yield gauge("scrub_unproved_bytes", "Bytes of that pass read from the page cache.", place.unproved_bytes)
    yield gauge("scrub_damaged", "Damaged places on the disk.", len(place.damaged))
    yield counter("scrub_mended", "Damaged places repaired from the home.", scrub.mended)


def home_metrics(membership: Membership | None) -> Iterator[Metric]:
    """The role of this server in its home; empty if it has none."""
    if membership is None:
        return
    driver = membership.driver
    roles = [([role.value], float(role is driver.role)) for role in Role]
    yield gauge("role", "1 for this server's role in its home, 0 for other roles.", roles, ["role"])
    yield gauge("term", "Term in which this server appends; 0 while it is not the primary.", driver.term)
    yield gauge("lease_remaining_seconds", "Remaining lease time of this primary.", driver.held_for_s)
    yield gauge("home_away", "1 while the home does not answer this server.", driver.is_away)
    if (hosts := driver.writable_hosts) is not None:
        yield gauge("home_writable_hosts", "Databases at the home's address that accept writes.", len(hosts))
    if driver.round_trip_s is not None:
        yield gauge("home_round_trip_seconds", "Last response time of the home.", driver.round_trip_s)
    if driver.standing is not None:
        yield gauge(
            "home_unproved",
            "1 while the home gives no lease, because it may lack data.",
            not driver.standing.is_vouched,
        )
    if (growth := membership.reporting.growth) is not None:
        sizes = [([table], size) for table, size in growth.sizes.items()]
        dead_rows = [([table], count) for table, count in growth.dead_rows.items()]
        yield gauge("home_bytes", "Size of the home's tables in its database.", sizes, ["table"])
        yield gauge("home_dead_rows", "Dead rows waiting for a vacuum.", dead_rows, ["table"])
        yield gauge("home_snapshot_seconds", "Age of the oldest transaction that keeps dead rows.", growth.snapshot_s)
        yield gauge(
            "home_snapshot_transactions",
            "Transactions since the oldest one that keeps dead rows.",
            growth.snapshot_transactions,
        )


def thread_metrics(threads: Threads) -> Iterator[Metric]:
    """How often permanent threads had to restart."""
    counts = [([name], count) for name, count in threads.restarts.items()]
    yield counter("thread_restarts", "Restarts of failed background threads and tasks.", counts, ["thread"])


def traffic_metrics(traffic: TrafficNow) -> Iterator[Metric]:
    """Events in and out by protocol."""
    counts = [
        ([protocol, direction], count)
        for protocol, counted in traffic().items()
        for direction, count in ((IN, counted.events_in), (OUT, counted.events_out))
    ]
    yield counter("events", "Events appended (in) and delivered to readers (out).", counts, ["protocol", "direction"])


def amqp_metrics(containers: Sequence[Container]) -> Iterator[Metric]:
    """Connections, links and messages of all containers."""
    yield gauge("amqp_connections_open", "AMQP connections.", sum(len(each.connections) for each in containers))
    for name, summary in AMQP_COUNTERS.items():
        yield counter(f"amqp_{name}", summary, sum(getattr(each.statistics, name) for each in containers))


def amqp_forwarding_metrics(replica: ReplicaAmqp | None) -> Iterator[Metric]:
    """Connections that this server forwards to the primary; empty if it does not forward any."""
    if replica is None or (forwarded := replica.forwarded) is None:
        return
    yield gauge("amqp_forwarded_open", "AMQP connections that this replica forwards.", len(forwarded.open))
    yield counter("amqp_forwarded", "AMQP connections that it forwarded.", forwarded.statistics.forwarded)
    yield counter(
        "amqp_forwarded_failed",
        "AMQP connections that the primary did not accept from it.",
        forwarded.statistics.failed,
    )


def memory_metrics(memory: MemoryAccount) -> Iterator[Metric]:
    """Memory held for peers on the event loop, and the requests refused and connections ended for lack of it."""
    yield gauge("memory_held_bytes", "Memory held for peers: requests and answers.", memory.bytes)
    yield gauge("memory_budget_bytes", "Maximum memory held for peers.", memory.bytes_max)
    yield gauge("memory_readers", "Connections with a streamed answer.", memory.readers)
    yield counter("memory_refused", "Requests and messages refused for lack of memory.", memory.refused)
    yield counter("memory_ended", "Connections closed because they read nothing while memory was low.", memory.ended)


def futoin_metrics(statistics: Statistics) -> Iterator[Metric]:
    """Calls and errors of the FutoIn endpoints, and results of pushes. Every label is one of a few names."""
    for name, summary, label, counts in (
        ("calls", "Valid calls, by function.", "function", statistics.calls),
        ("errors", "Error answers, by name.", "error", statistics.errors),
        ("pushes", "Pushed groups of events, by kind of consumer.", "kind", statistics.pushes),
    ):
        yield counter(f"futoin_{name}", summary, [([key], count) for key, count in counts.copy().items()], [label])
    yield counter("futoin_redeliveries", "Groups pushed again after an error or a timeout.", statistics.redeliveries)
    yield counter(
        "futoin_skipped", "Sequence numbers skipped by live consumers that were too slow.", statistics.skipped
    )


def http_metrics(http: HttpServer) -> Iterator[Metric]:
    """HTTP connections; the gate counts requests."""
    admission = http.admission
    yield gauge("http_connections_open", "HTTP connections, WebSockets included.", http.connections)
    yield counter("http_connections", "HTTP connections accepted.", admission.served)
    yield counter("http_connections_refused", "HTTP connections refused above the maximum.", admission.refused)


def webhook_metrics(service: Service) -> Iterator[Metric]:
    """Webhooks by state, their backlog, and the outcomes of calls."""
    endpoints = service.endpoints()
    standings = Counter(endpoint.standing.value for endpoint in endpoints)
    yield gauge("webhooks", "Webhooks, by status.", [([each], standings[each]) for each in STANDINGS], ["standing"])
    waiting = sum(endpoint.waiting for endpoint in endpoints)
    yield gauge("webhook_events_waiting", "Undelivered events in memory.", waiting)
    letters = sum(len(endpoint.kept.dead_letters) for endpoint in endpoints)
    yield gauge("webhook_dead_letters", "Refused events.", letters)
    calls = [([outcome], count) for outcome, count in service.webhooks.calls.items()]
    yield counter("webhook_calls", "Calls of webhooks, by outcome.", calls, ["outcome"])


def notification_metrics(bus: Bus) -> Iterator[Metric]:
    """Notifications emitted, by type."""
    counts = bus.counts
    samples = [([type.value], counts.get(type, 0)) for type in NotificationType]
    yield counter("management_events", "Notifications, by type.", samples, ["type"])


def loop_metrics(watchdog: LoopWatchdog) -> Iterator[Metric]:
    """The lag of the event loop, measured twenty-five times a second."""
    yield histogram("loop_lag_seconds", "Delay of the event loop.", [((), watchdog.lags)])


def bulk_metrics(bulk: BulkPlane | None) -> Iterator[Metric]:
    """Whether the bulk process serves, and how often it was replaced; empty if there is no such process."""
    if bulk is not None:
        yield gauge("bulk_up", "1 if Arrow Flight is served, or will be for its first client.", bulk.is_up)
        yield gauge("bulk_running", "1 if the bulk process is serving.", bulk.is_serving)
        yield counter("bulk_deaths", "Bulk processes that died.", bulk.deaths)
        yield counter("bulk_ended", "Connections closed because they sent more than was accepted.", bulk.ended)


def replica_metrics(replica: Replica) -> Iterator[Metric]:
    """How far a replica is behind its home."""
    yield gauge("replica_lag_events", "Events of all logs missing from the copy at the last check.", replica.lag_events)
    yield gauge("replica_is_told", "1 while the primary pushes its commits.", int(replica.is_told()))
    yield gauge("replica_logs_stuck", "Logs that cannot be followed.", replica.stuck)
    yield gauge("replica_lag_seconds", "Time since which the copy may be behind.", replica.lag_s)


def forwarding_metrics(forwarder: Forwarder | None) -> Iterator[Metric]:
    """What a replica forwards to the primary; empty if it does not."""
    if forwarder is None:
        return
    counts = forwarder.counts
    kinds = [(["request"], counts.requests), (["websocket"], counts.websockets)]
    failures = [
        (["not_sent"], counts.not_sent), (["outcome_unknown"], counts.unknown), (["broken_off"], counts.broken_off)
    ]  # fmt: skip
    yield gauge("forwarding", "Requests and WebSockets being forwarded to the primary.", forwarder.running)
    yield counter("forwarded", "Requests and WebSockets forwarded to the primary.", kinds, ["kind"])
    yield counter(
        "forwarding_failures",
        "Forwarded requests and WebSockets that failed between the servers.",
        failures,
        ["outcome"],
    )


def follower_metrics(watch: ConsumerWatch | None) -> Iterator[Metric]:
    """How far groups, streams and links were behind at the last check. The number of metrics is bounded. Groups and
    streams that are furthest behind are listed individually. Peers choose the names of links, so links are only counted
    for each log, with the greatest lag. Streams of several users under one name show the greatest lag: metrics name no
    users."""
    if watch is None:
        return
    by_log: dict[tuple[str, str], list[Follower]] = {}
    groups: list[Follower] = []
    streams: list[Follower] = []
    for follower in watch.followers:
        if follower.kind is FollowerKind.GROUP:
            groups.append(follower)
        elif follower.kind is FollowerKind.STREAM:
            streams.append(follower)
        else:
            by_log.setdefault((follower.log.name, follower.kind.value), []).append(follower)
    of_groups = [
        ((each.log.name, each.owner, each.component), watch.lag(each))
        for each in watch.furthest_behind(groups, GROUP_SERIES_MAX)
    ]
    furthest = watch.furthest_behind(streams, STREAM_SERIES_MAX)
    by_name = {(each.log.name, each.component): each for each in reversed(furthest)}
    of_streams = [(key, watch.lag(each)) for key, each in by_name.items()]
    of_links = [(key, watch.lag(watch.furthest_behind(each, 1)[0])) for key, each in by_log.items()]
    for name, found, labels, who in (
        ("group", of_groups, ("log", "group", "partition"), "the group in its partition"),
        ("stream", of_streams, ("log", "stream"), "the stream"),
        ("link", of_links, ("log", "kind"), "the link that is furthest behind"),
    ):
        events = [(key, lag.events) for key, lag in found]
        yield gauge(f"{name}_lag_events", f"Events waiting for {who}.", events, labels)
        seconds = [(key, lag.age_ms / 1000) for key, lag in found]
        yield gauge(f"{name}_lag_seconds", f"Age of the first event waiting for {who}.", seconds, labels)
    counts = [(key, len(each)) for key, each in by_log.items()]
    yield gauge("links_following", "Links that read a log, attached or durable.", counts, ("log", "kind"))
