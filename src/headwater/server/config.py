"""Every setting of the server: its name, default, how it is read, and what it is for. Nothing here is read or opened.

One rule gives each setting its three names: `http.port` in `headwater.toml` is `HEADWATER_HTTP_PORT` in the
environment and `--http-port` on the command line; `server.sources` reads all three. A room declares its own settings,
as `amqp.settings` does, and they are a section of `Config`; what is below is of the server itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

from ..amqp.settings import AmqpSettings
from ..cne.settings import Settings as CneSettings
from ..core.limits import APPEND_BYTES_MAX
from ..core.settings import LogSettings
from ..formats.values import (
    GIB,
    KIB,
    MIB,
    Described,
    Reader,
    boolean,
    byte_count,
    duration_ms,
    one_of,
    path,
    text,
    texts,
    whole_number,
)
from ..futoin.settings import Settings as FutoinSettings
from .accounts import Account

DEFAULT_LOG = "default"
"""The log that is there where none is configured."""


@dataclass(frozen=True, slots=True)
class Http:
    """What all front ends over HTTP share."""

    port: Annotated[int, Described(whole_number(0, 65535), "TCP port of HTTP; 0 takes any free one")] = 8080
    connections_max: Annotated[
        int, Described(whole_number(1, 1_000_000), "connections at the same time, WebSockets included; more get 503")
    ] = 10_000
    """Connections at the same time, WebSockets and subscriptions included; a request on one more is answered 503, and
    when there are too many of those as well, they are dropped. Questions about the server's health are answered even
    then."""
    body_bytes_max: Annotated[
        int, Described(byte_count(KIB, GIB), "largest request body; a larger one is answered 413")
    ] = APPEND_BYTES_MAX + 32 * MIB
    bodies_bytes_max: Annotated[
        int, Described(byte_count(MIB, 2**50), "bodies that have come in part, together; the largest is given up (503)")
    ] = GIB
    """Bodies of which a part has come, of all requests together. Where there is more, the largest is given up, and
    answered 503; there is always room for one."""
    trusted_proxies: Annotated[
        tuple[str, ...],
        Described(texts, "addresses or networks of proxies whose X-Forwarded-For and X-Forwarded-Proto count"),
    ] = ()
    """Addresses or networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` count. A list; in the
    environment and in flags, separated by commas."""


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
    """File with the certificate chain (PEM). With `tls.key`, it turns TLS on (1.2 and newer)."""
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
    """File with the authorities (PEM) that vouch for client certificates. Clients are then asked for one, and need none
    but where a setting says so; over AMQP (SASL EXTERNAL) its common name is the user."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the server takes on at once, and when it stops taking."""

    waiting_bytes_max: Annotated[
        int, Described(byte_count(MIB, 64 * GIB), "bytes of appends that may wait to be written, per log; more get 503")
    ] = 64 * MIB
    """Bytes of appends that may wait to be written, per log; what comes above is answered 503."""
    disk_reserve_bytes: Annotated[
        int, Described(byte_count(0, 2**60), "free disk space below which appends are refused")
    ] = 256 * MIB
    """Free disk space below which appends are refused. Reads, trims and acknowledgements go on."""
    stop_ms: Annotated[
        int, Described(duration_ms(0, 600_000), "how long running requests may take to finish when the server stops")
    ] = 10_000


@dataclass(frozen=True, slots=True)
class Management:
    """What happens in the server, told as events."""

    keep: Annotated[bool, Described(boolean, "keep what happens in the log $system")] = False
    """Keep [what happens in the server](events.md) in the log `$system`."""
    keep_retention_ms: Annotated[
        int, Described(duration_ms(1000, 10**15), "what is older than that is dropped from $system")
    ] = 30 * 86_400_000
    """What is older than that is dropped from `$system`."""
    keep_retention_bytes: Annotated[
        int, Described(byte_count(MIB, 2**60), "over that size, the oldest segments of $system are dropped")
    ] = GIB
    """Over that size, the oldest segments of `$system` are dropped."""
    lag_events: Annotated[
        int, Described(whole_number(0, 10**18), "a consumer lags that is further behind than so many; 0 = none does")
    ] = 100_000
    """A registered consumer that is further behind than so many sequence numbers lags, which is told. 0: however
    many."""
    lag_ms: Annotated[
        int, Described(duration_ms(0, 10**15), "a consumer lags whose next event is older than that; 0 = none does")
    ] = 0
    """A registered consumer whose next event is older than that lags, which is told. 0: however old."""


@dataclass(frozen=True, slots=True)
class Config:
    """The effective configuration. `server.sources.load` makes it."""

    data: Annotated[Path, Described(path, "data directory; made where it is missing")] = Path("headwater-data")
    """Data directory; made where it is missing. One process may serve it at a time."""
    storage: Annotated[
        str, Described(one_of("disk", "memory"), "where logs are kept; memory keeps nothing over a restart")
    ] = "disk"
    """`disk`, or `memory` for trying things out: nothing is kept over a restart."""
    host: Annotated[str, Described(text, "name or address to listen on, for every port")] = "127.0.0.1"
    insecure: Annotated[
        bool, Described(boolean, "allow everything to everybody on an address that is not loopback")
    ] = False
    """Allow everything to everybody on an address that is not loopback, where no user is configured."""
    log_level: Annotated[str, Described(one_of("debug", "info", "warning", "error"), "what is told on stderr")] = "info"
    """What is told on stderr: `debug`, `info`, `warning` or `error`."""
    http: Http = field(default_factory=Http)
    amqp: AmqpSettings = field(default_factory=AmqpSettings)
    futoin: FutoinSettings = field(default_factory=FutoinSettings)
    flight: Flight = field(default_factory=Flight)
    tls: Tls = field(default_factory=Tls)
    limits: Limits = field(default_factory=Limits)
    cne: CneSettings = field(default_factory=CneSettings)
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


SECTIONS: Mapping[str, type] = {
    name: hint for name, hint in get_type_hints(Config).items() if isinstance(hint, type) and is_dataclass(hint)
}
"""The sections in their order: the name of each, and the class that declares it."""


def _settings(section: type, prefix: str = "") -> Iterator[Setting]:
    types = get_type_hints(section, include_extras=True)
    for declared in fields(section):
        for described in getattr(types[declared.name], "__metadata__", ()):
            yield Setting(f"{prefix}{declared.name}", described.read, declared.default, described.summary)


SETTINGS: Mapping[str, Setting] = {
    setting.key: setting
    for prefix, section in (("", Config), *((f"{name}.", section) for name, section in SECTIONS.items()))
    for setting in _settings(section, prefix)
}
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
assert LOG_READERS.keys() == {declared.name for declared in fields(LogSettings)}
