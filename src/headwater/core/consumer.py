"""Registered reliable consumers: who they are and what they acknowledged. Only they hold trimming back."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import InvalidInput
from .limits import _UNFIT, show

CONSUMER_CHARS_MAX = 256


@dataclass(frozen=True, slots=True)
class Consumer:
    """One registered consumer of one log, keyed by (owner, component).

    A FutoIn user and component, an AMQP container and link name, or `spark` and `archiver`.
    """

    owner: str
    component: str
    acknowledged: int
    """Every event up to this number is done with. Never moves back, but by an explicit reset."""
    epoch: int
    """Raised by each registration; an acknowledgement that names an older one is fenced off."""
    registered_at: int
    """ms since 1970 UTC."""
    seen_at: int
    """When it last registered or acknowledged, ms since 1970 UTC."""


def check_consumer_key(owner: str, component: str) -> None:
    """Raises InvalidInput unless both are 1 to 256 characters without control characters."""
    for name, value in (("owner", owner), ("component", component)):
        if not isinstance(value, str) or not 1 <= len(value) <= CONSUMER_CHARS_MAX or _UNFIT.search(value):
            raise InvalidInput(f"1 to {CONSUMER_CHARS_MAX} characters expected, {show(value)} given", name)
