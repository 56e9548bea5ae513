"""This side's end of a link, which the connection calls with whatever happens on the link."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from ...core.local import LocalLog
from ..protocol.performatives import DeliveryState
from ..protocol.settlement import Settlement
from ..protocol.types import Described


class Ending(IntEnum):
    """What has ended when a link is over, the smaller ones with the greater."""

    CLOSED = 0
    """The link, closed by the peer for good."""
    DETACHED = 1
    """The link; it may be attached again."""
    SESSION = 2
    CONNECTION = 3


class LinkEnd:
    """One end of one link; all calls come on the event loop."""

    log: LocalLog | None = None
    """The log on which the link depends."""
    deliveries: int = 0
    """Messages received or sent since the link was attached."""
    attached_at: int = 0
    """When it was attached, in ms since 1970."""
    message_at: int = 0
    """When a message last went over it, likewise; 0 if none did."""
    outcome_at: int = 0
    """When the peer last gave an outcome, likewise."""

    @property
    def waits_for(self) -> str | None:
        """What must come before the next message goes over the link; None where that is not known."""
        return None

    @property
    def has_more(self) -> bool:
        """Whether more is about to be sent: the server does not close the connection before."""
        return False

    def on_messages(self) -> None:
        """Messages have come: take them from the link."""

    def on_outcomes(self, contexts: Sequence[Any], state: DeliveryState | Described | None) -> None:
        """The receiver has given what was sent an outcome; `contexts` were given to `Sender.send`."""

    def on_settlement(self, settlement: Settlement) -> None:
        """Of a link whose owner settles: the outcomes that have just come are to be settled, soon."""

    def on_ready(self) -> None:
        """Credit has come, or the session's window or the connection has room again: more may be sent."""

    def on_settled(self, tags: Sequence[bytes]) -> None:
        """The sender has settled what was given an outcome (rcv-settle-mode second)."""

    def on_detached(self, ending: Ending) -> None:
        """The link is over. Nothing comes any more."""
