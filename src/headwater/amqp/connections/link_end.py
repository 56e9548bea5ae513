"""This side's end of a link; the connection calls it with the link's events."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from ...core.local import LocalLog
from ..protocol.performatives import DeliveryState
from ..protocol.settlement import Settlement
from ..protocol.types import Described


class Ending(IntEnum):
    """What ended a link, in ascending order; each one includes those before it."""

    CLOSED = 0
    """The link, permanently closed by the peer."""
    DETACHED = 1
    """The link; it may be attached again."""
    SESSION = 2
    CONNECTION = 3


class LinkEnd:
    """One end of one link; all calls are on the event loop."""

    log: LocalLog | None = None
    """The log on which the link depends."""
    deliveries: int = 0
    """Messages received or sent since the link was attached."""
    attached_at: int = 0
    """When it was attached, in ms since 1970."""
    message_at: int = 0
    """When a message was last transferred over it, in ms since 1970; 0 if none was."""
    outcome_at: int = 0
    """When the peer last sent an outcome, in ms since 1970; 0 if it sent none."""

    @property
    def waits_for(self) -> str | None:
        """What must happen before the next message can be sent over the link; None if unknown."""
        return None

    @property
    def has_more(self) -> bool:
        """Whether it is about to send more. The server does not close the connection before that."""
        return False

    def on_messages(self) -> None:
        """Messages have arrived: take them from the link."""

    def on_outcomes(self, contexts: Sequence[Any], state: DeliveryState | Described | None) -> None:
        """The receiver has sent an outcome for deliveries; `contexts` were given to `Sender.send`."""

    def on_settlement(self, settlement: Settlement) -> None:
        """On a link whose owner settles: soon settle the outcomes that have just arrived."""

    def on_ready(self) -> None:
        """More may be sent: there is credit, or room in the session's window or the connection."""

    def on_settled(self, tags: Sequence[bytes]) -> None:
        """The sender has settled deliveries that had an outcome (rcv-settle-mode second)."""

    def on_detached(self, ending: Ending) -> None:
        """The link has ended. No further calls follow."""
