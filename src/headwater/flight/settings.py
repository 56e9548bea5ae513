"""The settings of Arrow Flight."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.limits import STAGED_BYTES_MAX
from ..formats.settings.declaration import MIB, boolean, byte_count, one_of, setting, whole_number

DEFAULT_PORT = 8815


@dataclass(frozen=True, slots=True)
class FlightSettings:
    """Arrow Flight: bulk reads and writes, in a process of its own."""

    enabled: bool = setting(True, boolean, "serve Arrow Flight (not with storage in memory)")
    port: int = setting(DEFAULT_PORT, whole_number(0, 65535), "TCP port of Arrow Flight; 0 = any free port")
    start: str = setting(
        "first_client",
        one_of("first_client", "at_once"),
        "when to start the bulk process: with the first_client, or at_once",
    )
    """When the process starts: with the `first_client`, or `at_once`. The server listens on the port in both cases."""
    streams_max: int = setting(
        64, whole_number(1, 10_000), "maximum number of concurrent reads and writes; clients retry refused ones"
    )
    lends: bool = setting(
        True, boolean, "share segments read-only with processes on this machine that may read the log"
    )
    staged_bytes_max: int = setting(
        STAGED_BYTES_MAX, byte_count(MIB, 2**50), "maximum number of bytes staged by exactly-once writers, per log"
    )
