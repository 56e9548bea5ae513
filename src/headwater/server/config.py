"""Every setting of the server: its name, default, how it is read, and what it is for. Nothing here is read or opened.

One rule gives each setting its three names: `http.port` in `headwater.toml` is `HEADWATER_HTTP_PORT` in the
environment and `--http-port` on the command line; `server.sources` reads all three. A room that needs settings
declares a section of its own, as `Http` is, and adds it to `Config`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

from ..core.errors import InvalidInput
from ..core.limits import APPEND_BYTES_MAX
from ..core.settings import LogSettings
from ..futoin import read_alias
from .accounts import Account
from .values import (
    Reader,
    boolean,
    byte_count,
    duration_ms,
    hosts,
    log_name,
    name,
    one_of,
    path,
    text,
    texts,
    whole_number,
)

KIB, MIB, GIB = 2**10, 2**20, 2**30
DEFAULT_LOG = "default"
"""The log that is there where none is configured."""


class InvalidConfiguration(InvalidInput):
    """A setting is unknown, malformed or out of its range; `where` is the file and key, the variable, or the flag."""


class Described(NamedTuple):
    """What a field of a section is annotated with: its reader and one line of documentation."""

    read: Reader[Any]
    summary: str


@dataclass(frozen=True, slots=True)
class Http:
    """What all front ends over HTTP share."""

    port: Annotated[int, Described(whole_number(0, 65535), "TCP port of HTTP; 0 takes any free one")] = 8080
    connections_max: Annotated[
        int, Described(whole_number(1, 1_000_000), "connections at the same time, WebSockets included; more get 503")
    ] = 10_000
    body_bytes_max: Annotated[
        int, Described(byte_count(KIB, GIB), "largest request body; a larger one is answered 413")
    ] = APPEND_BYTES_MAX + 32 * MIB
    bodies_bytes_max: Annotated[
        int, Described(byte_count(MIB, 2**50), "bodies that have come in part, together; the largest is given up (503)")
    ] = GIB
    trusted_proxies: Annotated[
        tuple[str, ...],
        Described(texts, "addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto count"),
    ] = ()


def _type_aliases(value: object) -> tuple[str, ...]:
    """Reads a list of LOGS:TYPE=ALIAS."""
    given = texts(value)
    for its in given:
        try:
            read_alias(its)
        except InvalidInput as error:
            raise ValueError(error.problem) from None
    return given


@dataclass(frozen=True, slots=True)
class Futoin:
    """What FutoIn clients see of event types that are none of theirs."""

    aliases: Annotated[
        tuple[str, ...],
        Described(_type_aliases, "event types by another name, as LOGS:TYPE=ALIAS; LOGS is a pattern of log names"),
    ] = ()
    without_other: Annotated[
        tuple[str, ...],
        Described(texts, "patterns of logs whose events are left out where their type neither fits nor has an alias"),
    ] = ()


@dataclass(frozen=True, slots=True)
class Amqp:
    """AMQP 1.0. Times are in ms."""

    port: Annotated[int, Described(whole_number(0, 65535), "TCP port of AMQP; 0 takes any free one")] = 5672
    connections_max: Annotated[
        int, Described(whole_number(1, 1_000_000), "connections at the same time; more are refused")
    ] = 10_000
    sessions_max: Annotated[int, Described(whole_number(1, 65_536), "sessions of one connection")] = 256
    links_max: Annotated[int, Described(whole_number(1, 65_536), "links of one session")] = 256
    frame_bytes_max: Annotated[
        int, Described(byte_count(512, 16 * MIB), "largest frame; a larger message comes in several")
    ] = 64 * KIB
    idle_ms: Annotated[
        int, Described(duration_ms(2000, 86_400_000), "a connection from which nothing comes for so long is closed")
    ] = 120_000
    login_ms: Annotated[
        int, Described(duration_ms(100, 600_000), "how long a peer may take from connecting to its open")
    ] = 10_000
    credit: Annotated[int, Described(whole_number(1, 100_000), "messages that one producer may have under way")] = 1000
    unsettled_max: Annotated[
        int, Described(whole_number(1, 1_000_000), "messages to one consumer that may wait for their outcome")
    ] = 5000
    group_pending_max: Annotated[
        int, Described(whole_number(0, 100_000), "receivers that may wait for a partition, per consumer group")
    ] = 256
    group_pending_ms: Annotated[
        int, Described(duration_ms(0, 86_400_000), "how long a receiver may wait for a partition")
    ] = 300_000
    group_drain_ms: Annotated[
        int, Described(duration_ms(0, 600_000), "how long a receiver that loses its partition may take to settle")
    ] = 2000
    termini_max: Annotated[
        int,
        Described(
            whole_number(0, 10_000_000),
            "durable subscriptions that one log remembers, and as many positions of consumer groups",
        ),
    ] = 10_000


@dataclass(frozen=True, slots=True)
class Flight:
    """Arrow Flight: bulk reads and writes, in a process of its own."""

    enabled: Annotated[bool, Described(boolean, "serve Arrow Flight; with storage in memory it is not served")] = True
    port: Annotated[int, Described(whole_number(0, 65535), "TCP port of Arrow Flight; 0 takes any free one")] = 8815
    streams_max: Annotated[
        int, Described(whole_number(1, 10_000), "reads and writes at the same time; more are told to try again")
    ] = 64
    staged_bytes_max: Annotated[
        int, Described(byte_count(MIB, 2**50), "bytes that exactly-once writers may have staged, per log")
    ] = 16 * GIB


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS of every listening port; both or none."""

    certificate: Annotated[
        Path | None, Described(path, "file with the certificate chain (PEM); with the key, turns TLS on")
    ] = None
    key: Annotated[Path | None, Described(path, "file with the private key (PEM)")] = None
    hosts: Annotated[
        tuple[str, ...],
        Described(texts, "other certificates by the host name that a client asks for (SNI): NAME=CERTIFICATE:KEY"),
    ] = ()
    client_ca: Annotated[
        Path | None,
        Described(
            path, "file with authorities (PEM) whose client certificates are accepted; their common name is the user"
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What the server takes on at once, and when it stops taking."""

    waiting_bytes_max: Annotated[
        int, Described(byte_count(MIB, 64 * GIB), "bytes of appends that may wait to be written, per log; more get 503")
    ] = 64 * MIB
    disk_reserve_bytes: Annotated[
        int, Described(byte_count(0, 2**60), "free disk space below which appends are refused")
    ] = 256 * MIB
    stop_ms: Annotated[
        int, Described(duration_ms(0, 600_000), "how long running requests may take to finish when the server stops")
    ] = 10_000


@dataclass(frozen=True, slots=True)
class Cne:
    """The O-Cloud notification API."""

    log: Annotated[str, Described(log_name, "log that holds the events; made when it is first needed")] = "cne"
    cluster: Annotated[str, Described(name, "this server's own cluster, for `.` in a resource address")] = ""
    site: Annotated[str, Described(name, "this server's own site")] = ""
    node: Annotated[str, Described(name, "this server's own node")] = ""
    strict: Annotated[bool, Described(boolean, "refuse events that break the specification in anything")] = False
    event_bytes_max: Annotated[
        int, Described(byte_count(KIB, 16 * MIB), "largest event, as it is delivered; a larger one is answered 413")
    ] = 64 * KIB
    hosts: Annotated[
        tuple[str, ...],
        Described(hosts, "where webhooks may be: loopback, addresses, networks, names with *, or * for everywhere"),
    ] = ("loopback",)
    v1_wraps: Annotated[bool, Described(boolean, "send CloudEvents to subscribers of v1, and not bare events")] = False
    v1_unique_ids: Annotated[bool, Described(boolean, "bare events carry their own id, and not the subscription's")] = (
        False
    )
    webhook_handshake: Annotated[
        bool, Described(boolean, "ask a new webhook by CloudEvents' OPTIONS handshake, too")
    ] = False
    public_reads: Annotated[bool, Described(boolean, "where there are users, let everybody read all the same")] = False
    client_certificates: Annotated[
        bool, Described(boolean, "take calls that change something only with a verified client certificate")
    ] = False
    timeout_ms: Annotated[int, Described(duration_ms(10, 60_000), "how long a webhook may take to answer")] = 2000
    queue_events_max: Annotated[
        int, Described(whole_number(1, 100_000), "events that wait in memory for one endpoint; more wait in the log")
    ] = 1000
    retry_ms_min: Annotated[int, Described(duration_ms(1, 60_000), "pause after a webhook's first failure")] = 200
    retry_ms_max: Annotated[int, Described(duration_ms(1, 3_600_000), "longest pause between two tries")] = 30_000
    suspend_after_ms: Annotated[
        int, Described(duration_ms(0, 10**12), "how long a webhook may fail before it is suspended until resumed")
    ] = 3_600_000
    subscriptions_max: Annotated[
        int, Described(whole_number(1, 1_000_000), "how many subscriptions, and how many publishers, there may be")
    ] = 10_000
    owner_subscriptions_max: Annotated[
        int, Described(whole_number(1, 1_000_000), "how many of each one user, or client certificate, may have")
    ] = 1000


@dataclass(frozen=True, slots=True)
class Management:
    """What happens in the server, told as events."""

    keep: Annotated[bool, Described(boolean, "keep what happens in the log $system")] = False
    keep_retention_ms: Annotated[
        int, Described(duration_ms(1000, 10**15), "what is older than that is dropped from $system")
    ] = 30 * 86_400_000
    keep_retention_bytes: Annotated[
        int, Described(byte_count(MIB, 2**60), "over that size, the oldest segments of $system are dropped")
    ] = GIB
    lag_events: Annotated[
        int, Described(whole_number(0, 10**18), "a consumer lags that is further behind than so many; 0 = none does")
    ] = 100_000
    lag_ms: Annotated[
        int, Described(duration_ms(0, 10**15), "a consumer lags whose next event is older than that; 0 = none does")
    ] = 0


@dataclass(frozen=True, slots=True)
class Config:
    """The effective configuration. `server.sources.load` makes it."""

    data: Annotated[Path, Described(path, "data directory; made where it is missing")] = Path("headwater-data")
    storage: Annotated[
        str, Described(one_of("disk", "memory"), "where logs are kept; memory keeps nothing over a restart")
    ] = "disk"
    host: Annotated[str, Described(text, "name or address to listen on, for every port")] = "127.0.0.1"
    insecure: Annotated[
        bool, Described(boolean, "allow everything to everybody on an address that is not loopback")
    ] = False
    log_level: Annotated[str, Described(one_of("debug", "info", "warning", "error"), "what is told on stderr")] = "info"
    http: Http = field(default_factory=Http)
    amqp: Amqp = field(default_factory=Amqp)
    futoin: Futoin = field(default_factory=Futoin)
    flight: Flight = field(default_factory=Flight)
    tls: Tls = field(default_factory=Tls)
    limits: Limits = field(default_factory=Limits)
    cne: Cne = field(default_factory=Cne)
    management: Management = field(default_factory=Management)
    logs: Mapping[str, Mapping[str, object]] = field(default_factory=lambda: {DEFAULT_LOG: {}})
    """Logs to create at start: fields of LogSettings, only those that were given."""
    users: Mapping[str, Account] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    """Where each setting comes from, by key; one that is missing here has its default."""


class Setting(NamedTuple):
    """One setting of the table `SETTINGS`."""

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


def _settings(section: type, prefix: str = "") -> Iterator[Setting]:
    types = get_type_hints(section, include_extras=True)
    for its in fields(section):
        if is_dataclass(inner := types[its.name]):
            assert isinstance(inner, type)
            yield from _settings(inner, f"{prefix}{its.name}.")
        for described in getattr(inner, "__metadata__", ()):
            yield Setting(f"{prefix}{its.name}", described.read, its.default, described.summary)


SETTINGS: Mapping[str, Setting] = {its.key: its for its in _settings(Config)}
"""Every setting but logs and users, by key."""

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
}
"""How the settings of one log are read; `LogSettings` itself checks their ranges."""
assert LOG_READERS.keys() == {its.name for its in fields(LogSettings)}
