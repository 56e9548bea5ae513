"""The settings of FutoIn event streams: event type names, group sizes, and what is served."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.errors import InvalidInput
from ..formats.settings.declaration import boolean, setting, shown_as, texts, whole_number
from .naming import Alias, read_alias

PAGE_EVENTS = 1000
"""The maximum number of events in one page or group (FTN18, 3.1: EventList)."""


@shown_as("LOG:TYPE=NAME,...")
def _aliases(value: object) -> tuple[Alias, ...]:
    """Reads a list of LOGS:TYPE=ALIAS."""
    try:
        return tuple(map(read_alias, texts(value)))
    except InvalidInput as error:
        raise ValueError(error.problem) from None


@dataclass(frozen=True, slots=True)
class Settings:
    """What FutoIn clients may do, and what they see of others' events. Tests shorten the times."""

    aliases: Sequence[Alias] = setting(
        (), _aliases, "aliases of event types, as LOGS:TYPE=ALIAS; LOGS is a pattern of log names"
    )
    """Names of event types for FutoIn clients, as `LOGS:TYPE=ALIAS` (`orders:OrderPlaced=ORDER_PLACED`); `LOGS` is
    a pattern of log names.
    """
    without_other: Sequence[str] = setting(
        (), texts, "patterns of logs; skip their events if the type is not valid in FutoIn and has no alias"
    )
    """Patterns of logs whose events are not sent to FutoIn clients if the type is not valid in FutoIn and has no
    alias; in other logs they are sent as `OTHER`.
    """
    allow_reliable: bool = setting(True, boolean, "allow reliable consumers; if false, only LIVE")
    """Whether clients can be reliable consumers. If not, only `LIVE` is allowed, and others get a `SecurityError`."""
    allow_polling: bool = setting(True, boolean, "allow polling; if false, events are only pushed")
    """Whether events can be polled. If not, pollEvents is refused with a `SecurityError`."""
    max_chunk_events: int = setting(PAGE_EVENTS, whole_number(1, PAGE_EVENTS), "maximum number of events per message")
    """Maximum number of events in one message, polled or pushed."""
    reliable_group_events: int = setting(
        100, whole_number(1, PAGE_EVENTS), "maximum number of unacknowledged events pushed to a reliable consumer"
    )
    """Maximum number of events pushed to a reliable consumer at once. The consumer answers after it has processed
    all of them, within 5 seconds in FutoIn's own library. Halved after a failure.
    """
    answer_s: float = 30.0
    """How long to wait for the answer to a push before it is sent again."""
    retry_s: float = 1.0
    """The pause before a failed push is sent again; it doubles with each failure in a row, up to `answer_s`."""
    seen_interval_s: float = 15.0
    """How often a waiting consumer is recorded as seen, and checked for changes by others."""
    live_behind_max: int = 10_000
    """How many events a live consumer may lag before the oldest are skipped."""
