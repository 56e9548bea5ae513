"""A change of settings, or of consumers, that would drop events is refused until the request says how many may go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.core import Event, LogSettings, OpenGuard
from headwater.dcb import Application
from headwater.storage import Engine

from .conftest import Answer, Client

LOG = "/logs/orders"
CONSUMER = f"{LOG}/consumers/spark/archiver"
BEGIN = 1_700_000_000_000
PATCH = ("PATCH", LOG)
HOUR = 3_600_000
HALF = 5 * HOUR + HOUR // 2
"""An age in ms that five of the ten events have."""


class Served:
    """A stored log of ten events, one an hour, on a clock that stands still; it is asked over HTTP."""

    def __init__(self, directory: Path) -> None:
        self.now = BEGIN
        self.engine = Engine(directory, clock=lambda: self.now, maintains=False, reserve_bytes=0)
        self.log = self.engine.create("orders")
        for _ in range(10):
            self.log.append([Event("Placed")])
            self.now += HOUR
        self.client = Client(Application(self.engine, OpenGuard()))

    def ask(self, method: str, path: str, body: Any = b"", drops_at_most: int | None = None) -> Answer:
        parameters = {} if drops_at_most is None else {"drops_at_most": drops_at_most}
        return self.client.ask(method, path, body, parameters=parameters)

    def first_retained(self) -> int:
        """Where the log begins once retention has run."""
        self.engine.maintain()
        return self.log.first_retained

    def check_asked(self, method: str, path: str, body: Any, drops: int) -> None:
        """It is refused with that number, so it is with a lower ceiling, and it is done with a higher one."""
        settings, consumers, first = self.log.settings, self.log.consumers(), self.first_retained()
        for ceiling in (None, 0, drops - 1):
            answer = self.ask(method, path, body, ceiling)
            assert (answer.status, answer.code) == (409, "would_drop"), ceiling
            assert answer.json["drops"] == drops
        assert (self.log.settings, self.log.consumers(), self.first_retained()) == (settings, consumers, first)
        assert self.ask(method, path, body, drops + 5).status in (200, 201, 204)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path / "data")
    yield served
    served.client.close()
    served.engine.close()


def test_a_retention_that_drops_everything_is_refused_and_says_what_would_go(served: Served) -> None:
    answer = served.ask("PATCH", LOG, {"retention_ms": 30})
    assert (answer.status, answer.code) == (409, "would_drop")
    facts = {name: answer.json[name] for name in ("log", "drops", "first", "last", "history")}
    assert facts == {"log": "orders", "drops": 10, "first": 1, "last": 10, "history": 0}
    assert (answer.json["first_recorded_at"], answer.json["last_recorded_at"]) == (BEGIN, BEGIN + 9 * HOUR)
    assert "10 events of log 'orders', numbered 1 to 10" in answer.json["detail"]
    assert served.first_retained() == 1
    assert served.ask("PATCH", LOG, {"retention_ms": 30}, drops_at_most=10).json["settings"]["retention_ms"] == 30
    assert served.first_retained() == 11


def test_each_setting_that_drops_events_is_refused(served: Served) -> None:
    served.check_asked(*PATCH, {"retention_ms": HALF}, 5)
    assert served.first_retained() == 6
    served.log.register_consumer("spark", "archiver", after=7)
    served.check_asked(*PATCH, {"retention_ms": None, "retention_until_acknowledged": True}, 2)
    assert served.first_retained() == 8
    served.check_asked(*PATCH, {"keeps_history": False, "retention_until_acknowledged": False}, 7)
    assert served.log.known_from == 8


def test_events_that_are_too_old_within_minutes_count_as_dropped(served: Served) -> None:
    newest_ms = HOUR + 2000
    answer = served.ask("PATCH", LOG, {"retention_ms": newest_ms}, drops_at_most=9)
    assert (answer.status, answer.code, answer.json["drops"]) == (409, "would_drop", 10)
    assert "numbered 1 to 10, within 5 minutes; give drops_at_most=10" in answer.json["detail"]
    served.check_asked(*PATCH, {"retention_ms": newest_ms}, 10)
    assert served.first_retained() == 10
    served.now += 3000
    assert served.first_retained() == 11


def test_a_retention_that_is_shorter_than_these_minutes_is_refused_for_what_it_drops_now(served: Served) -> None:
    served.engine.change("orders", LogSettings(retention_ms=HOUR + 60_000), drops_at_most=10)
    served.check_asked(*PATCH, {"retention_ms": 60_000}, 1)
    assert served.first_retained() == 11


def test_history_that_goes_counts_as_dropped(served: Served) -> None:
    served.log.trim(4)
    answer = served.ask("PATCH", LOG, {"keeps_history": False})
    assert (answer.status, answer.json["drops"], answer.json["history"]) == (409, 3, 3)
    assert (answer.json["first"], answer.json["last"]) == (1, 3)
    assert "first_recorded_at" not in answer.json
    answer = served.ask("PATCH", LOG, {"keeps_history": False, "retention_ms": HALF})
    assert (answer.json["drops"], answer.json["history"], answer.json["last"]) == (5, 3, 5)
    assert answer.json["first_recorded_at"] == BEGIN + 3 * HOUR


def test_consumers_that_become_too_old_count_as_gone(served: Served) -> None:
    served.log.register_consumer("spark", "archiver", after=0)
    served.now += 60 * HOUR
    served.check_asked(*PATCH, {"retention_ms": 60 * HOUR + HALF, "consumer_age_ms_max": 50 * HOUR}, 5)
    assert served.first_retained() == 6
    assert served.log.consumers() == []


def test_what_goes_anyway_is_not_asked_about(served: Served) -> None:
    served.engine.change("orders", LogSettings(retention_ms=100 * HOUR))
    served.now += 95 * HOUR + HOUR // 2  # retention has not run since
    assert served.ask("PATCH", LOG, {"event_bytes_max": 2048}).status == 200
    served.check_asked(*PATCH, {"retention_ms": 98 * HOUR}, 2)
    assert served.ask("PATCH", LOG, {"retention_ms": None}).status == 200


def test_a_consumer_that_is_moved_ahead_is_refused_where_the_log_would_drop_what_it_held(served: Served) -> None:
    served.log.register_consumer("spark", "archiver", after=0)
    served.engine.change("orders", LogSettings(retention_until_acknowledged=True))
    served.check_asked("POST", f"{CONSUMER}/reset", {"after": 10}, 10)
    assert served.first_retained() == 11
    assert served.ask("POST", f"{CONSUMER}/reset", {"after": 0}).status == 200


def test_a_consumer_that_is_unregistered_is_refused_where_the_log_would_drop_what_it_held(served: Served) -> None:
    served.log.register_consumer("spark", "archiver", after=2)
    served.engine.change("orders", LogSettings(retention_ms=HALF), drops_at_most=2)
    assert served.first_retained() == 3
    served.check_asked("DELETE", CONSUMER, b"", 3)
    assert served.first_retained() == 6


def test_the_first_consumer_is_refused_where_the_log_would_drop_what_is_before_its_start(served: Served) -> None:
    served.engine.change("orders", LogSettings(retention_until_acknowledged=True))
    assert served.ask("PUT", CONSUMER, {"after": 0}).status == 201
    assert served.ask("DELETE", CONSUMER).status == 204
    served.check_asked("PUT", CONSUMER, {}, 10)
    assert served.first_retained() == 11


def test_acknowledgements_are_free(served: Served) -> None:
    served.log.register_consumer("spark", "archiver", after=0)
    served.engine.change("orders", LogSettings(retention_until_acknowledged=True))
    assert served.ask("POST", f"{CONSUMER}/acknowledge", {"sequence_number": 8}).status == 200
    assert served.first_retained() == 9


def test_a_ceiling_that_is_no_number_is_a_bad_request(served: Served) -> None:
    for text in ("all", "-1", "1.5", ""):
        answer = served.client.ask("PATCH", LOG, {"retention_ms": 30}, parameters={"drops_at_most": text})
        assert (answer.status, answer.json["parameter"]) == (400, "drops_at_most")
    assert served.log.settings.retention_ms is None
