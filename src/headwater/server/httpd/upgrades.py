"""A parser of HTTP requests that ignores unsupported upgrades and reads their requests like any other.

Java's HttpClient and `curl --http2` ask on every plain connection whether they may continue in HTTP/2 (`Upgrade: h2c`).
A server may ignore that and answer (RFC 9110, 7.8). But the parser treats the data after such a head, including the
body, as another protocol. So the head is parsed again, without the upgrade."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import httptools

from .heads import Field


class Reader(Protocol):
    """What the parser calls, in addition to httptools' callbacks."""

    @property
    def is_upgrade_ignored(self) -> bool:
        """Whether the head just read asks for an unsupported upgrade."""

    @property
    def head(self) -> tuple[bytes, list[Field]]:
        """Its target and its fields."""


class UpgradeIgnoringParser(httptools.HttpRequestParser):
    """The httptools parser, which handles upgrades as its reader decides."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self.set_dangerous_leniencies(lenient_data_after_close=True)  # the first request of several is answered
        self._reader = reader

    def feed_data(self, data: Any) -> None:
        """See httptools. Raises HttpParserUpgrade for an upgrade that is not ignored."""
        rest = memoryview(data)
        while True:
            try:
                super().feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if not self._reader.is_upgrade_ignored:
                    raise
                rest = rest[upgrade.args[0] :]
            super().feed_data(self._head_without_upgrade())

    def _head_without_upgrade(self) -> bytes:
        target, fields = self._reader.head
        lines = [b"%b %b HTTP/%b" % (self.get_method(), target, self.get_http_version().encode())]
        lines += [b"%b: %b" % field for field in fields if field[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])


def upgrade_of(fields: Iterable[Field]) -> bytes | None:
    """The protocol that a head asks to upgrade to, in lower case, if the connection needs to know."""
    upgrade, tokens = None, [b""]
    for name, value in fields:
        if name == b"connection":  # several fields form one list (RFC 9110, 5.3): a proxy may add its own
            tokens += [token.strip() for token in value.lower().split(b",")]
        elif name == b"upgrade":
            upgrade = value.lower()
    return upgrade if b"upgrade" in tokens else None
