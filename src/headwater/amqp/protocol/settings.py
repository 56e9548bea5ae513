"""What one side of a connection announces and allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


def _always(size: int) -> bool:
    return True


def _never(size: int) -> None:
    return None


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Limits on everything that the peer controls. Announced limits are enforced."""

    frame_bytes_max: int = 65_536
    """max-frame-size: the largest frame that this side accepts; at least 512."""
    channel_max: int = 255
    """The highest channel number: one less than the number of sessions."""
    handle_max: int = 255
    """The highest handle: one less than the number of links of a session."""
    idle_ms: int | None = None
    """The connection is closed if the peer sends nothing for this long; half of it is announced (2.4.5)."""
    incoming_window: int = 5000
    """Transfers that may be in flight to this side, per session."""
    unsettled_max: int = 65_536
    """Deliveries from the peer that may be unsettled, per session. If there are more, the session ends, regardless of
    the credit.
    """
    take: Callable[[int], bool] = _always
    """Called before the connection keeps that many bytes for its peer. If it returns False, they are refused."""
    give: Callable[[int], None] = _never
    """Called when the connection releases that many of these bytes."""
    sasl_mechanisms: tuple[str, ...] = ()
    """The mechanisms that a server offers. If there are none, SASL is refused."""
    needs_sasl: bool = False
    """Whether a server refuses a peer that begins without SASL."""
    open_fields: dict[str, Any] = field(default_factory=dict)
    """Other fields of our open: hostname, capabilities, properties."""


IDLE_MS_MIN = 1000
"""A peer with a shorter idle-time-out is refused."""
