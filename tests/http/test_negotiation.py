"""Of an Accept header no more is looked at than a client that means it sends."""

from __future__ import annotations

import pytest

from headwater.http.exchange import ACCEPT_BYTES_MAX, preferred

OFFERED = {"text/html": "page", "application/json": "data"}


@pytest.mark.parametrize("filler", [b",", b"a/b,", b";q=,"])
def test_no_more_is_looked_at(filler: bytes) -> None:
    few, many = filler * 100, filler * (ACCEPT_BYTES_MAX // len(filler))
    assert preferred(few + b",text/html", OFFERED, "data") == "page"
    assert preferred(many + b",text/html", OFFERED, "data") == "data"
    assert preferred(b"text/html," + many * 50, OFFERED, "data") == "page"
