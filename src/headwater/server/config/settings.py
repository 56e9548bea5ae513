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
    """The OTLP/HTTP collector for spans (`http://127.0.0.1:4318`; `/v1/traces` is added). Turns
    [spans](../guides/tracing.md) on; needs the extra `[otel]`.
    """
    sampled_percent: int = setting(100, whole_number(0, 100), "percentage of traces started here that are sampled")
    """The percentage of traces beginning here that are sampled. A trace that began elsewhere is sampled as decided
    there.
    """
    service_name: str = setting("headwater", text, "name of this server in its spans (service.name)")


DEFAULT_LOG = "default"
"""The log that is created when none is configured and none exists."""


@dataclass(frozen=True, slots=True)
class Http:
    """Settings shared by all HTTP front ends."""

    port: int = setting(8080, whole_number(0, 65535), "TCP port of HTTP; 0 takes any free one")
    unix: Path | None = setting(
        None, path, "path of an additional Unix socket, for programs of the same user on this machine"
    )
    """Path of an additional Unix socket, for programs on this machine that run as the same user (its mode is 0600). It
    is created at the start and removed at a stop; one left by a killed server is replaced. It has no TLS; logins,
    limits and accepted host names are those of `http.port`. Its URL is `http+unix:///path`. [How to use
    it](../guides/operations.md#unix-socket).
    """
    connections_max: int = setting(
        10_000, whole_number(1, 1_000_000), "maximum number of connections, including WebSockets; further ones get 503"
    )
    """Concurrent connections, WebSockets and subscriptions included; more get 503, or are closed over TLS. A few more
    are read: health checks, logins, the console, management and metrics are answered.
    """
    body_bytes_max: int = setting(
        APPEND_BYTES_MAX + 32 * MIB, byte_count(KIB, GIB), "largest request body; larger ones get 413"
    )
    trusted_proxies: tuple[str, ...] = setting(
        (), trusted_hosts, "addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted"
    )
    """Addresses or networks (`10.0.0.0/8`; `10.0.0.1/8` is refused) of proxies whose `X-Forwarded-For` and
    `X-Forwarded-Proto` are trusted, or `*` alone for all. A list; in the environment and in flags, separated by commas.
    """
    hosts: tuple[str, ...] = setting((), host_names, "additional Host names for a server on loopback or without users")
    """Host names accepted by a server that listens on loopback, or has no users, besides loopback names, IP addresses,
    and `host`; any other name gets 421. Without ports. [Why](../guides/operations.md#web-pages).
    """
    origins: tuple[str, ...] = setting(
        (), origins, "additional origins of web pages that may send requests, such as https://app.example.org"
    )
    """Origins of web pages, other than the server's own, that may send requests and read the answers (CORS):
    `https://app.example.org`, with a port unless it is the scheme's own. `null` is a page without an origin; `*` is
    every origin, and needs users. [Why](../guides/operations.md#web-pages).
    """
    metrics_need_right: bool = setting(
        False, boolean, "restrict /metrics to users with the right metrics:* or manage:*"
    )
    """Whether `/metrics`, where there are users, needs `metrics:*` or `manage:*`. Otherwise any user may read it,
    whatever its rights.
    """


@dataclass(frozen=True, slots=True)
class Memory:
    """How much memory peers may make the server use."""

    peers: int | None = setting(
        None,
        byte_count(16 * MIB, 2**50),
        "memory for data of peers (default: a quarter of the cgroup's or machine's)",
    )
    """Memory for everything that peers make the server hold: requests until they are answered, unread answers, waiting
    appends. A request that does not fit now gets 503, one that can never fit 413. Default: a quarter of the memory of
    the server's cgroup, or the machine, and at least 64 MiB. [How it is divided](limits.md#memory).
    """


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the server accepts at once, and when it stops accepting."""

    writers_max: int = setting(
        10_000, whole_number(1, 1_000_000), "maximum number of exactly-once writers per log; further ones are refused"
    )
    """[Exactly-once writers](flight.md#writing) that have not ended, per log. More are refused, unless one has been
    silent for 7 days, which is then forgotten. From 80 % on the server warns, in its log and in the health answer. Each
    takes 0.6 to 1.8 KiB of memory.
    """
    writer_unfinished_ms: int = setting(
        30 * 86_400_000,
        duration_ms(3_600_000, 10**12),
        "minimum time to remember a writer with an unfinished batch",
    )
    """The least time that a log remembers a writer with an incomplete newest batch. If it is forgotten for a new
    writer, and continues later, that batch is appended again from its beginning.
    """
    unindexed_bytes_max: int = setting(
        64 * MIB,
        byte_count(MIB, 64 * GIB),
        "maximum bytes of unindexed events of all logs; above it, bulk loads get 503",
    )
    """Bytes that the newest events of all logs may take in the in-memory index, until they are in index files; a start
    reads as much again. [Bulk loads slow down from half of it on, and get 503 at this limit; other appends get 503 at
    1.25 times it](../guides/operations.md#when-the-index-falls-behind).
    """
    disk_reserve_bytes: int | None = setting(
        None,
        byte_count(0, 2**60),
        "free disk space below which appends are refused (default: 256 MiB, at most a tenth)",
    )
    """Free disk space below which appends are refused. Reads, trims and acknowledgements go on. Default: 256 MiB, but
    at most a tenth of the file system, so that a small one can be used too. Space for missing ballast is kept too.
    """
    disk_ballast_bytes: int = setting(
        16 * MIB,
        byte_count(0, GIB),
        "preallocated space released when the disk is full, for trims, stops and starts; 0 = none",
    )
    """Ballast files in the data directory, given up 1 MiB at a time when other programs fill the disk, so that trims,
    deletions, stops and starts still work. They are recreated when there is room. 0: none.
    """
    clock_patience_ms: int = setting(
        3_600_000, duration_ms(0, 10**12), "how long a clock that jumped ahead must be stable before it is trusted"
    )
    """How long a clock that jumped ahead must stay so before it is believed; until then events get the time before the
    jump. `headwater clock --accept` believes it at once.
    """
    scrub_ms: int = setting(
        7 * 86_400_000, duration_ms(0, 10**12), "how often all files are verified on the disk; 0 = only on request"
    )
    """How often all files of the data directory are [read from the disk again and
    verified](../guides/disaster-recovery.md#the-scrub). A pass takes at most 3 % of a core, so with much data it may
    take longer. 0: only after `headwater scrub --now`.
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
    """Older notifications are dropped from `$system`."""
    keep_retention_bytes: int = setting(
        GIB, byte_count(MIB, 2**60), "drop the oldest segments of $system above this size"
    )
    """Above this size, the oldest segments of `$system` are dropped."""
    lag_events: int = setting(
        100_000, whole_number(0, 10**18), "report a consumer as lagging above this number of events; 0 = never"
    )
    """A reader with a position (a consumer, a group, a link) lags if it is more than this many sequence numbers behind,
    which is reported. 0: no bound.
    """
    lag_ms: int = setting(
        0, duration_ms(0, 10**15), "report a consumer as lagging if its next event is older than this; 0 = never"
    )
    """A reader with a position lags if its next event is older than this, which is reported. 0: no bound."""


@dataclass(frozen=True, slots=True)
class Replica:
    """Replicas: servers of a shared home that are not its primary."""

    stale_ms_max: int = setting(
        30_000, duration_ms(1_000, 10**12), "how long a replica serves reads after it last caught up with its home"
    )
    """How long a replica serves reads without catching up with its home, which may be unreachable. For that long it may
    also admit a removed user. After that it answers 503 and says so.
    """
    forward: bool = setting(True, boolean, "a replica forwards to the primary what only the primary can do")
    """Whether a replica forwards to the primary, at its advertised address, what only that can do: [HTTP requests
    and WebSockets](../guides/high-availability.md#forwarding), and [AMQP
    connections](../guides/high-availability.md#amqp). `false`: it answers 421, or `amqp:connection:redirect`, with that
    address.
    """


@dataclass(frozen=True, slots=True)
class Config:
    """The effective configuration. `server.config.sources.load` makes it."""

    data: Path = setting(Path("headwater-data"), path, "data directory; created if missing")
    """Data directory; created if missing. One process may serve it at a time."""
    storage: str = setting("disk", one_of("disk", "memory"), "where logs are stored; memory does not survive a restart")
    """`disk`, or `memory` for trying things out: nothing survives a restart."""
    home: str | None = setting(
        None, text, "PostgreSQL database shared by several servers: postgresql://USER@HOST/DATABASE"
    )
    """Address of a [home in PostgreSQL](../guides/high-availability.md), shared by several servers: the primary
    appends, the others are replicas. The data directory is a copy then. `headwater home init` creates the home. Keep
    the password where PostgreSQL's clients look for one (`PGPASSFILE`, `PGPASSWORD`) rather than in the address.
    """
    advertise: tuple[str, ...] = setting(
        (), texts, "addresses of this server for clients, announced to the other servers: http=URL,amqp=URL,flight=URL"
    )
    """Client addresses of this server, which the other servers of its home learn: `http=https://a.example:8080`,
    `amqp=`, `flight=`. A list; in the environment and in flags, separated by commas.
    """
    home_lease_ms: int = setting(
        5_000, duration_ms(1_000, 600_000), "how long a server stays the primary of its home without renewing its lease"
    )
    """How long a server of a home stays its primary without a sign of life: after it dies, no server can append for
    this long, and a little longer. The same on all servers of a home.
    """
    host: str = setting("127.0.0.1", text, "name or address to listen on, for all ports")
    insecure: bool = setting(False, boolean, "allow requests without credentials on an address that is not loopback")
    """Allow everything to everyone on an address that is not loopback, if no user is configured."""
    log_level: str = setting("info", one_of("debug", "info", "warning", "error"), "lowest level logged to stderr")
    """The lowest level logged to stderr: `debug`, `info`, `warning` or `error`."""
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
"""Settings that the previous version had, by key. If one is given, the start logs a warning."""

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
