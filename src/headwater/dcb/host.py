"""What every handler gets: the host with its open logs, and what the answers of a log repeat."""

from __future__ import annotations

from ..core.local import LocalLog
from ..core.open_logs import OpenLog
from ..http import Header, LogHost


class Described:
    """What the answers of one log repeat."""

    __slots__ = ("has_partitions", "incarnation")

    def __init__(self, name: str, log: LocalLog) -> None:
        self.incarnation = log.info().incarnation
        self.has_partitions = log.settings.partitions > 1

    def headers(self, head: int) -> list[Header]:
        """The header fields with which each read answers the head."""
        return [(b"headwater-head", b"%d" % head), (b"headwater-incarnation", self.incarnation.encode())]


Host = LogHost[Described]
Opened = OpenLog[Described]
