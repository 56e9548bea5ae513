"""uvicorn's HTTP protocol, but that an upgrade that is not offered is ignored: its request is read as any other.

Java's HttpClient and `curl --http2` ask on every plain connection whether they may go on in HTTP/2 (`Upgrade: h2c`). A
server may ignore that and answer (RFC 9110, 7.8). But the parser takes whatever follows such a head for another
protocol, and with it the body of the request. So the head is read once more, without what asks.
"""

from __future__ import annotations

from typing import Any

import httptools

from .bounded_requests import BoundedHttpProtocol


class UpgradeIgnoringHttpProtocol(BoundedHttpProtocol):
    """One connection, on which WebSocket is the only upgrade."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.parser = _Parser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does

    def on_headers_complete(self) -> None:
        """See httptools."""
        if not self.is_upgrade_ignored:
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """See httptools."""
        if not self.is_upgrade_ignored:
            super().on_message_complete()

    @property
    def is_upgrade_ignored(self) -> bool:
        """Whether the head that was just read comes again, without its upgrade: nothing is to be done about it yet."""
        parser = self.parser
        return parser.should_upgrade() and parser.get_method() != b"CONNECT" and not self._should_upgrade()

    def head_without_upgrade(self) -> bytes:
        """The head that was just read, without its upgrade."""
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % field for field in self.headers if field[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])


class _Parser(httptools.HttpRequestParser):
    def __init__(self, protocol: UpgradeIgnoringHttpProtocol) -> None:
        super().__init__(protocol)
        self._protocol = protocol

    def feed_data(self, data: Any) -> None:
        """See httptools. Raises HttpParserUpgrade for a WebSocket only."""
        rest = memoryview(data)
        while True:
            try:
                super().feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if not self._protocol.is_upgrade_ignored:
                    raise
                rest = rest[upgrade.args[0] :]
            super().feed_data(self._protocol.head_without_upgrade())
