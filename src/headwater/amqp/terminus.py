"""What stands at this end of a link: what happens on the link is told to it by the connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .protocol.performatives import DeliveryState
from .protocol.types import Described


class Terminus:
    """One end of one link; all calls come on the event loop."""

    def on_messages(self) -> None:
        """Messages have come: take them from the link."""

    def on_outcomes(self, contexts: Sequence[Any], state: DeliveryState | Described | None) -> None:
        """The receiver's word on what was sent, by the contexts given to `Sender.send`."""

    def on_ready(self) -> None:
        """Credit has come, or the session's window or the connection has room again: more may be sent."""

    def on_settled(self, tags: Sequence[bytes]) -> None:
        """The sender has settled what was given an outcome (rcv-settle-mode second)."""

    def on_detached(self, *, is_closed: bool) -> None:
        """The link is over; `is_closed`: the peer closed it for good. Nothing comes any more."""
