"""A planned change of the primary: for whom the next lease is, as an entry of the state that all servers have.

It names the term that ends with it, so it is void as soon as any server has begun another term. The primary gives its
lease back; the others leave it to the named server for as long as a lease lasts.
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
"""A replica that had all of its home within that time is fit to take over."""
_PATIENCE_S = 5.0


class HandOver(msgspec.Struct, frozen=True):
    """For whom the lease is after a term."""

    server: str
    term: int


def hand_over_of(state: StateStore) -> HandOver | None:
    """The newest one. Raises StorageUnavailable, StorageCorrupted."""
    entry = state.get(HOME_KIND, _KEY)
    return None if entry is None else json_decoder(HandOver).decode(entry.value)


def ask_for(state: StateStore, wanted: HandOver) -> None:
    """Have the primary hand over. Raises NotPrimary, StorageUnavailable."""
    state.put(HOME_KIND, _KEY, msgspec.json.encode(wanted))


def obstacle_of(home: PostgresHome, name: str) -> str | None:
    """Why that server is not to be the next primary; None: it may. Raises StorageUnavailable."""
    reports = home.servers()
    running = [each.name for each in reports if each.runs]
    report = next((each for each in reports if each.name == name and each.runs), None)
    if report is None:
        return f"no server {name} runs; running: {', '.join(running) or 'none'}"
    if report.ahead:
        return f"its copy is ahead of the home: {report.ahead}"
    if report.lag_s is None:
        return "its copy has not caught up with the home yet"
    if report.lag_s > CAUGHT_UP_S:
        return f"it is behind: by {report.lag_events} events, as it knew {report.lag_s:.0f} s ago"
    return _unready(report)


def _unready(report: ServerReport) -> str | None:
    """What the server itself says, where it is asked as a load balancer asks."""
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
