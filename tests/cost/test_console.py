"""The console's login, with JSON that nobody asked for, and with cookies that are none."""

from __future__ import annotations

import pytest

from tests.every import every

from .measuring import ObservedServer
from .shapes import ANY_JSON

SIZE_MAX = 16 * 1024
COOKIE = "headwater-80"
COOKIES = {
    "many": lambda size: "; ".join([f"{COOKIE}=x"] * (size // (len(COOKIE) + 4))),
    "empty": lambda size: ";" * size,
    "long": lambda size: f"{COOKIE}=" + "x" * size,
}


@every("shape", ANY_JSON, ids=str)
def test_a_login_with_json_that_nobody_asked_for(guarded: ObservedServer, shape: str) -> None:
    guarded.check_growth(
        f"POST /console/session, {shape}",
        lambda size: guarded.exchange(
            "POST", "/console/session", ANY_JSON[shape](size), "application/json", **{"headwater-console": "1"}
        ),
        SIZE_MAX,
    )


@pytest.mark.parametrize("shape", COOKIES)
def test_cookies_that_are_none(guarded: ObservedServer, shape: str) -> None:
    statuses = set()

    def ask(size: int) -> None:
        fields = {"headwater-console": "1", "sec-fetch-site": "same-origin", "cookie": COOKIES[shape](size)}
        statuses.add(guarded.exchange("GET", "/logs", b"", "application/json", **fields))

    guarded.check_growth(f"cookies, {shape}", ask, 200_000)
    assert statuses <= {401, 431}, statuses
