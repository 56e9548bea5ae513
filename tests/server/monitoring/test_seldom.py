"""A collector that is away for a day does not fill the log."""

from __future__ import annotations

import logging

import pytest

from headwater.server.monitoring.tracing import AGAIN_S, Seldom


def test_a_message_that_is_repeated_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    library = logging.Logger("opentelemetry.x")
    library.addHandler(Seldom(lambda: now))
    for now in (0.0, 1.0, AGAIN_S - 1, AGAIN_S, AGAIN_S + 1):
        library.warning("no answer, again in %s s", now)
        library.error("lost")
    told = [(record.name, record.getMessage()) for record in caplog.records]
    expected = ["no answer, again in 0.0 s", "lost", f"no answer, again in {AGAIN_S} s", "lost"]
    assert told == [("opentelemetry.x", text) for text in expected]
