"""Every setting of the server: its name, default, parser and purpose. Nothing here is read or opened.

One rule gives each setting its three names: `http.port` in `headwater.toml` is `HEADWATER_HTTP_PORT` in the
environment and `--http-port` on the command line; `server.config.sources` reads all three. A room declares its own
settings, as `amqp.settings` does, as a section of `Config`; the settings below are the server's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ...amqp.settings import AmqpSettings
from ...cne.settings import Settings as CneSettings
from ...console.settings import ConsoleSettings
from ...core.limits import APPEND_BYTES_MAX, show
from ...core.settings import LogSettings
from ...flight.settings import FlightSettings
from ...formats.settings.declaration import (
    GIB,
    KIB,
    MIB,
    Reader,
    boolean,
    byte_count,
    duration_ms,
    host_names,
    one_of,
    origins,
    path,
    setting,
    shown_as,
    text,
    texts,
    trusted_hosts,
    whole_number,
)
from ...futoin.settings import Settings as FutoinSettings
from ..process.sockets import Tls
from ..users.accounts import Account
from ..users.oidc.settings import Oidc


@shown_as("URL")
def collector_url(value: object) -> str:
    """Parses a collector URL: http or https, without user, query and fragment."""
    given = text(value)
    try:
        parts = urlsplit(given)
        is_fit = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_fit = is_fit and "@" not in parts.netloc and not parts.query and not parts.fragment
    except ValueError:
        is_fit = False
    if not is_fit:
        raise ValueError(f"expected a URL such as http://127.0.0.1:4318, got {show(given)}")
    return given


_url: Reader[str | None] = collector_url


@dataclass(frozen=True, slots=True)
class Tracing:
    """Spans of the server's work, for a collector that accepts OTLP over HTTP."""

    endpoint: str | None = setting(None, _url, "collector for spans (OTLP over HTTP); requires the extra [otel]")
    """OTLP/HTTP collector for [spans](../guides/tracing.md) (`http://127.0.0.1:4318`; `/v1/traces` is added); needs
    the extra `[otel]`.
    """
    sampled_percent: int = setting(100, whole_number(0, 100), "percentage of traces started here that are sampled")
    service_name: str = setting("headwater", text, "name of this server in its spans (service.name)")


DEFAULT_LOG = "default"
"""The log that is created when none is configured and none exists."""


@dataclass(frozen=True, slots=True)
class Http:
    """Settings shared by all HTTP front ends."""

    port: int = setting(8080, whole_number(0, 65535), "TCP port of HTTP; 0 = any free port")
    unix: Path | None = setting(
        None, path, "path of an additional Unix socket, for programs of the same user on this machine"
    )
    """Path of an additional Unix socket (mode 0600), `http+unix:///path`, for programs of the same user on this
    machine, without TLS. [How to use it](../guides/operations.md#unix-socket).
    """
    connections_max: int = setting(
        10_000, whole_number(1, 1_000_000), "maximum number of connections, including WebSockets; further ones get 503"
    )
    body_bytes_max: int = setting(
        APPEND_BYTES_MAX + 32 * MIB, byte_count(KIB, GIB), "largest request body; larger ones get 413"
    )
    trusted_proxies: tuple[str, ...] = setting(
        (), trusted_hosts, "addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted"
    )
    """Addresses or networks (`10.0.0.0/8`; `10.0.0.1/8` is refused) of proxies whose `X-Forwarded-For` and
    `X-Forwarded-Proto` are trusted, or `*` alone for all.
    """
    hosts: tuple[str, ...] = setting((), host_names, "additional Host names for a server on loopback or without users")
    """Additional host names, without ports, of a server on loopback or without users; requests for other host names
    get 421. [Why](../guides/operations.md#web-pages).
    """
    origins: tuple[str, ...] = setting(
        (), origins, "additional origins of web pages that may send requests, such as https://app.example.org"
    )
    """Other origins of web pages that may send requests and read the answers (CORS): `https://app.example.org`,
    with a port unless it is the default port of the scheme; `null`; or `*`, which requires users.
    [Why](../guides/operations.md#web-pages).
    """
    metrics_need_right: bool = setting(
        False, boolean, "restrict /metrics to users with the right metrics:* or manage:*"
    )


@dataclass(frozen=True, slots=True)
class Memory:
    """How much memory peers may make the server use."""

    peers: int | None = setting(
        None,
        byte_count(16 * MIB, 2**50),
        "memory for data of peers (default: a quarter of the memory of the cgroup or machine)",
    )
    """Memory for requests, unread answers and waiting appends. Default: a quarter of the memory of the cgroup or
    machine, at least 64 MiB. [How it is divided](limits.md#memory).
    """


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the server accepts at once, and when it stops accepting."""

    writers_max: int = setting(
        10_000, whole_number(1, 1_000_000), "maximum number of exactly-once writers per log; further ones are refused"
    )
    """Unfinished [exactly-once writers](flight.md#writing) per log. Further writers are refused, unless an existing
    one has been inactive for 7 days; that one is then forgotten. The server logs a warning at 80 %.
    """
    writer_unfinished_ms: int = setting(
        30 * 86_400_000,
        duration_ms(3_600_000, 10**12),
        "minimum time to remember a writer with an unfinished batch",
    )
    """Minimum time that a log remembers a writer whose newest batch is incomplete. The batch of a forgotten writer
    starts again from its beginning.
    """
    unindexed_bytes_max: int = setting(
        64 * MIB,
        byte_count(MIB, 64 * GIB),
        "maximum bytes of unindexed events of all logs; above it, bulk loads get 503",
    )
    """Memory for index entries of all logs that are not yet in a file; a start reads the same amount again. [Bulk
    loads slow down at half of it, and get 503 at the limit; other appends get 503 at 1.25
    times](../guides/operations.md#when-the-index-falls-behind).
    """
    disk_reserve_bytes: int | None = setting(
        None,
        byte_count(0, 2**60),
        "free disk space below which appends are refused (default: 256 MiB, at most a tenth)",
    )
    """Free disk space, in addition to missing ballast, below which appends are refused. Reads, trims and
    acknowledgements continue. Default: 256 MiB, at most a tenth of the file system.
    """
    disk_ballast_bytes: int = setting(
        16 * MIB,
        byte_count(0, GIB),
        "preallocated space released when the disk is full, for trims, stops and starts; 0 = none",
    )
    """Size of the ballast files, which are released 1 MiB at a time when the disk is full, so that trims,
    deletions, shutdowns and starts still work. 0: no ballast.
    """
    clock_patience_ms: int = setting(
        3_600_000, duration_ms(0, 10**12), "how long a clock that jumped ahead must be stable before it is trusted"
    )
    """How long a clock that jumped ahead must be stable before it is trusted; until then events get the trusted
    time. `headwater clock --accept` trusts it at once.
    """
    scrub_ms: int = setting(
        7 * 86_400_000, duration_ms(0, 10**12), "how often all files are verified on the disk; 0 = only on request"
    )
    """How often all files are [verified on the disk](../guides/disaster-recovery.md#the-scrub), with at most 3 % of
    a core. 0: only by `headwater scrub --now`.
    """
    stop_ms: int = setting(
        10_000, duration_ms(0, 600_000), "how long running requests may take to finish when the server stops"
    )


@dataclass(frozen=True, slots=True)
class Management:
    """Which notifications are kept, and when a consumer lags."""

    keep: bool = setting(False, boolean, "store notifications in the log $system")
    """Keep [notifications of the server](events.md) in the log `$system`."""
    keep_retention_ms: int = setting(
        30 * 86_400_000, duration_ms(1000, 10**15), "drop notifications older than this from $system"
    )
    keep_retention_bytes: int = setting(
        GIB, byte_count(MIB, 2**60), "drop the oldest segments of $system above this size"
    )
    lag_events: int = setting(
        100_000, whole_number(0, 10**18), "report a consumer as lagging above this number of events; 0 = never"
    )
    """A reader with a position (a consumer, a group, a link) that is at least this many numbers behind is reported
    as lagging. 0: never.
    """
    lag_ms: int = setting(
        0, duration_ms(0, 10**15), "report a consumer as lagging if its next event is older than this; 0 = never"
    )
    """A reader whose next event is older than this is reported as lagging. 0: never."""


@dataclass(frozen=True, slots=True)
class Replica:
    """Replicas: servers of a shared home that are not its primary."""

    stale_ms_max: int = setting(
        30_000, duration_ms(1_000, 10**12), "how long a replica serves reads after it last caught up with its home"
    )
    """How long a replica serves reads, and accepts removed users, without contact with its home; after that it
    answers 503.
    """
    forward: bool = setting(
        True, boolean, "forward requests that only the primary can handle from a replica to the primary"
    )
    """Whether a replica forwards requests that only the primary can handle: [HTTP requests and
    WebSockets](../guides/high-availability.md#forwarding), and [AMQP
    connections](../guides/high-availability.md#amqp). `false`: it answers 421, or `amqp:connection:redirect`, with
    that address.
    """


@dataclass(frozen=True, slots=True)
class Config:
    """The effective configuration. Created by `server.config.sources.load`."""

    data: Path = setting(Path("headwater-data"), path, "data directory; created if missing")
    """Data directory; created if missing. Only one process can serve it."""
    storage: str = setting("disk", one_of("disk", "memory"), "where logs are stored; memory does not survive a restart")
    """`disk`, or `memory` for tests: nothing survives a restart."""
    home: str | None = setting(
        None, text, "PostgreSQL database shared by several servers: postgresql://USER@HOST/DATABASE"
    )
    """Address of a [home in PostgreSQL](../guides/high-availability.md), which several servers share. The data
    directory is then a copy. Keep the password in `PGPASSFILE` or `PGPASSWORD` rather than in the address.
    """
    advertise: tuple[str, ...] = setting(
        (), texts, "addresses of this server for clients, announced to the other servers: http=URL,amqp=URL,flight=URL"
    )
    """This server's addresses for clients, announced to the other servers of its home:
    `http=https://a.example:8080`, `amqp=`, `flight=`.
    """
    home_lease_ms: int = setting(
        5_000, duration_ms(1_000, 600_000), "how long a server stays the primary of its home without renewing its lease"
    )
    """How long a server remains the primary of its home without renewing its lease. Appends fail for about this
    time after the primary dies. Must be the same on all servers of a home.
    """
    host: str = setting("127.0.0.1", text, "name or address to listen on, for all ports")
    insecure: bool = setting(False, boolean, "allow requests without credentials on an address that is not loopback")
    """Allow all requests without credentials on an address that is not loopback, if there are no users."""
    log_level: str = setting("info", one_of("debug", "info", "warning", "error"), "lowest level logged to stderr")
    """Lowest level logged to stderr: `debug`, `info`, `warning` or `error`."""
    http: Http = field(default_factory=Http)
    amqp: AmqpSettings = field(default_factory=AmqpSettings)
    futoin: FutoinSettings = field(default_factory=FutoinSettings)
    flight: FlightSettings = field(default_factory=FlightSettings)
    tls: Tls = field(default_factory=Tls)
    oidc: Oidc = field(default_factory=Oidc)
    memory: Memory = field(default_factory=Memory)
    limits: Limits = field(default_factory=Limits)
    cne: CneSettings = field(default_factory=CneSettings)
    console: ConsoleSettings = field(default_factory=ConsoleSettings)
    management: Management = field(default_factory=Management)
    tracing: Tracing = field(default_factory=Tracing)
    replica: Replica = field(default_factory=Replica)
    logs: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: {DEFAULT_LOG: {}})
    """Logs to create at start: the given fields of LogSettings only."""
    users: Mapping[str, Account] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    """The source of each setting, by key; a missing key means the default."""
    removed: Mapping[str, str] = field(default_factory=dict)
    """Removed settings that were given, by key, with their sources."""

    @property
    def names_logs(self) -> bool:
        """Whether `logs` was given, even with its default value."""
        return self.logs != {DEFAULT_LOG: {}} or f"logs.{DEFAULT_LOG}" in self.origins


class Setting(NamedTuple):
    """One setting in the table `SETTINGS`."""

    key: str
    """As in the file: `http.port`."""
    read: Reader[Any]
    default: Any
    summary: str

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return f"HEADWATER_{self.key.replace('.', '_').upper()}"

    @property
    def flag(self) -> str:
        """Its command line flag."""
        return f"--{self.key.replace('.', '-').replace('_', '-')}"


_DEFAULTS = Config()
SECTIONS: Mapping[str, type] = {
    declared.name: type(section)
    for declared in fields(Config)
    if is_dataclass(section := getattr(_DEFAULTS, declared.name))
}
"""The sections in order: the name of each, and the class that declares its settings."""


def _settings(section: type, prefix: str = "") -> Iterator[Setting]:
    for declared in fields(section):
        if declared.metadata:
            yield Setting(key=f"{prefix}{declared.name}", default=declared.default, **declared.metadata)


SETTINGS: Mapping[str, Setting] = {
    found.key: found
    for prefix, section in (("", Config), *((f"{name}.", section) for name, section in SECTIONS.items()))
    for found in _settings(section, prefix)
}
"""Every setting but logs and users, by key."""


class RemovedSetting(Setting):
    """A setting without effect; its `summary` says what replaces it. It is read until the version after next, so that a
    server starts with the configuration of the previous version.
    """


REMOVED: Mapping[str, RemovedSetting] = {
    removed.key: removed
    for removed in (
        RemovedSetting("http.bodies_bytes_max", byte_count(MIB, 2**50), None, "memory.peers"),
        RemovedSetting("limits.waiting_bytes_max", byte_count(MIB, 64 * GIB), None, "memory.peers"),
    )
}
"""Removed settings of the previous version, by key. If one is given, the server logs a warning at start."""

_EVER = 10**18
LOG_READERS: Mapping[str, Reader[object]] = {
    "partitions": whole_number(1, _EVER),
    "partition_by": lambda value: value,
    "retention_ms": duration_ms(1, _EVER),
    "retention_bytes": byte_count(1, _EVER),
    "retention_until_acknowledged": boolean,
    "event_bytes_max": byte_count(1, _EVER),
    "id_horizon": whole_number(1, _EVER),
    "keeps_history": boolean,
    "consumer_age_ms_max": duration_ms(1, _EVER),
    "default_start": lambda value: value,
}
"""Parsers for the settings of one log; `LogSettings` itself checks their ranges."""
assert LOG_READERS.keys() == {declared.name for declared in fields(LogSettings)}
