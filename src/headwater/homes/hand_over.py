"""A planned change of the primary: an entry of the replicated state that names the server to get the next lease.

It also names the term that it ends, so it is void once another term has begun. The primary releases its lease. The
other servers leave it to the named server for the length of a lease.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import msgspec

from ..core.state import StateStore
from ..formats.decoders import json_decoder
from ..storage.home.identifier import HOME_KIND

if TYPE_CHECKING:
    from .postgres.home import PostgresHome
    from .postgres.servers import ServerReport

_KEY = "hand-over"
CAUGHT_UP_S = 5.0
"""A replica that was caught up within this time can take over."""
_PATIENCE_S = 5.0


class HandOver(msgspec.Struct, frozen=True):
    """The server to get the lease after a term."""

    server: str
    term: int


def hand_over_of(state: StateStore) -> HandOver | None:
    """The newest hand-over; None if there never was one. Raises StorageUnavailable, StorageCorrupted."""
    entry = state.get(HOME_KIND, _KEY)
    return None if entry is None else json_decoder(HandOver).decode(entry.value)


def ask_for(state: StateStore, wanted: HandOver) -> None:
    """Ask the primary to hand over. Raises NotPrimary, StorageUnavailable."""
    state.put(HOME_KIND, _KEY, msgspec.json.encode(wanted))


def obstacle_of(home: PostgresHome, name: str) -> str | None:
    """Why that server cannot be the next primary; None if it can. Raises StorageUnavailable."""
    reports = home.servers()
    running = [each.name for each in reports if each.runs]
    report = next((each for each in reports if each.name == name and each.runs), None)
    if report is None:
        return f"server {name} is not running; running servers: {', '.join(running) or 'none'}"
    if report.ahead:
        return f"its copy is ahead of the home: {report.ahead}"
    if report.lag_s is None:
        return "its copy has not caught up with the home yet"
    if report.lag_s > CAUGHT_UP_S:
        return f"it is {report.lag_events} events behind, and last caught up {report.lag_s:.0f} s ago"
    return _unready(report)


def _unready(report: ServerReport) -> str | None:
    """Why the server itself is not ready, from the readiness check that load balancers use; None if it is ready."""
    if (url := report.addresses.get("http")) is None:
        return None
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/health/ready?role=replica", timeout=_PATIENCE_S) as answer:
            troubles = json.loads(answer.read()).get("troubles", ())
    except urllib.error.HTTPError as refused:
        with refused:
            return f"it is not ready: {_detail(refused.read())}"
    except (OSError, ValueError) as error:
        return f"it does not answer at {url}: {error}"
    return "; ".join(troubles) or None


def _detail(problem: bytes) -> str:
    try:
        return str(json.loads(problem)["detail"])
    except (ValueError, KeyError, TypeError):
        return problem.decode(errors="replace")[:200]
