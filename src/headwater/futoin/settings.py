"""The settings of FutoIn event streams: what its clients see of event types that are none of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.errors import InvalidInput
from ..formats.values import setting, texts
from .naming import Alias, read_alias


def _aliases(value: object) -> tuple[Alias, ...]:
    """Reads a list of LOGS:TYPE=ALIAS."""
    try:
        return tuple(map(read_alias, texts(value)))
    except InvalidInput as error:
        raise ValueError(error.problem) from None


@dataclass(frozen=True, slots=True)
class Settings:
    """What FutoIn clients see of event types that are none of theirs. The times are there to be shortened by tests."""

    aliases: Sequence[Alias] = setting(
        (), _aliases, "event types by another name, as LOGS:TYPE=ALIAS; LOGS is a pattern of log names"
    )
    """Event types by another name for FutoIn clients, as `LOGS:TYPE=ALIAS` (`orders:OrderPlaced=ORDER_PLACED`); `LOGS`
    is a pattern of log names. A list; in the environment and in flags, separated by commas."""
    without_other: Sequence[str] = setting(
        (), texts, "patterns of logs whose events are left out where their type neither fits nor has an alias"
    )
    """Patterns of logs from which FutoIn clients do not get the events whose type neither fits nor has an alias;
    elsewhere those come as `OTHER`."""
    answer_s: float = 30.0
    """How long a consumer may take to answer a push before it is sent again."""
    retry_s: float = 1.0
    """The pause before a failed push is sent again; it doubles with each failure in a row, up to `answer_s`."""
    seen_interval_s: float = 15.0
    """How often a consumer that waits for events is noted as seen, and looked at for what others did to it."""
    live_behind_max: int = 10_000
    """How many events a live consumer may lag behind before the oldest are left out."""
