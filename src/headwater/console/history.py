"""Recent measurements: some series, step by step."""

from __future__ import annotations

import time

from msgspec import Struct

from ..core.access import Right, User
from ..core.limits import show
from ..http import Exchange
from ..http.errors import InvalidParameter
from ..http.exchange import as_json
from .host import ConsoleHost
from .lag_series import DURABLE, LAG_SERIES
from .rings import COARSE_S, FINE_S
from .series import LOG_PEAKS, LOG_SERIES, SERVER_GAUGES, SERVER_PEAKS, SERVER_SERIES

SERIES_ASKED_MAX = 32
"""The maximum number of series in one response: a day of each has 1,440 numbers."""


class HistoryOut(Struct):
    """Values of some series, oldest first. Steps are `step_s` apart, and each value belongs to one step."""

    step_s: int
    newest_at: int
    """The beginning of the newest step, in ms since 1970 UTC."""
    series: dict[str, list[float | None]]


class NamesOut(Struct):
    """The series available to a user."""

    series: list[str]


async def history(host: ConsoleHost, exchange: Exchange) -> None:
    """GET /console/history"""
    user = await host.user(exchange)
    parameters = exchange.parameters("series", "step")
    step_s = _step(parameters.get("step"))
    if "series" not in parameters:
        await exchange.answer(200, as_json(NamesOut(_names(host, user))), headers=((b"cache-control", b"no-store"),))
        return
    names = parameters["series"].split(",")
    if len(names) > SERIES_ASKED_MAX:
        raise InvalidParameter("series", f"expected at most {SERIES_ASKED_MAX}, got {len(names)}")
    now = time.time()
    found = {name: _values(host, user, name, step_s, now) for name in names}
    answer = HistoryOut(step_s, int(now) // step_s * step_s * 1000, found)
    await exchange.answer(200, as_json(answer), headers=((b"cache-control", b"no-store"),))


def _names(host: ConsoleHost, user: User) -> list[str]:
    """The series that the user may request."""
    of_server = (*SERVER_SERIES, *SERVER_GAUGES, *SERVER_PEAKS) if user.may(Right.MANAGE, "*") else ()
    logs = [log for log in sorted(host.live.series.logs) if user.may(Right.READ, log)]
    of_logs = (f"{log}/{name}" for log in logs for name in (*LOG_SERIES, *LOG_PEAKS))
    consumers = [each for each in sorted(host.live.series.consumers) if user.may(*_right_to(each))]
    return [*of_server, *of_logs, *(f"{each}/{name}" for each in consumers for name in LAG_SERIES)]


def _right_to(consumer: str) -> tuple[Right, str]:
    """The right needed to see how far behind a consumer was, and on which log."""
    if consumer.startswith(DURABLE):
        return Right.MANAGE, "*"
    kind_and_log = consumer.partition("/")[0]
    return Right.READ, kind_and_log.rpartition(":")[2]


def _values(host: ConsoleHost, user: User, name: str, step_s: int, now: float) -> list[float | None]:
    """Raises Forbidden, InvalidParameter."""
    of, slash, what = name.rpartition("/")
    if slash and what in LAG_SERIES:
        right, log = _right_to(of)
    else:
        right, log = (Right.READ, of) if slash else (Right.MANAGE, "*")
    host.guard.authorize(user, right, log)
    found = host.live.series.values(what, of if slash else None, step_s, now)
    if found is None:
        raise InvalidParameter(
            "series", f"there is no series {show(name)}; without this parameter, the answer lists the series"
        )
    return found


def _step(text: str | None) -> int:
    steps = {None: FINE_S, str(FINE_S): FINE_S, str(COARSE_S): COARSE_S}
    if text not in steps:
        raise InvalidParameter("step", f"expected {FINE_S} (an hour) or {COARSE_S} (a day), got {show(text)}")
    return steps[text]
