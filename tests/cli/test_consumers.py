import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.running import RunningServer

from headwater.cli.consumers import _duration
from headwater.cli.main import REFUSED
from headwater.client import RemoteLog, connect
from headwater.core import Event

WHO = ("orders", "alice", "Billing")


@pytest.fixture
def managed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteLog]:
    """A log of a server that has management too: it counts how far its consumers are behind."""
    with RunningServer("--storage", "memory", "--log", "orders", cwd=tmp_path) as server:
        monkeypatch.setenv("HEADWATER_URL", server.url)
        with connect(server.url) as connection:
            yield connection.log("orders")


def test_a_consumer_is_registered_skipped_reset_and_unregistered(headwater, log: RemoteLog) -> None:
    log.append([Event("A")] * 10)
    done = headwater("consumers", "register", *WHO, "--after", "2")
    assert done.out == "registered alice Billing; it continues after 2\n"
    assert headwater("consumers", "skip", *WHO, "--events", "3").out == "alice Billing continues after 5\n"
    assert headwater("consumers", "skip", *WHO).out == "alice Billing continues after 10\n"
    assert headwater("consumers", "skip", *WHO, "--events", "1").out == "alice Billing continues after 10\n"
    assert headwater("consumers", "reset", *WHO, "--after", "4").out == "alice Billing continues after 4\n"
    assert headwater("consumers", "unregister", *WHO).out == "unregistered alice Billing\n"
    assert log.consumers() == []


def test_the_list_has_lag_and_age(headwater, managed: RemoteLog) -> None:
    managed.append([Event("A")] * 10)
    managed.register_consumer("alice", "Billing", after=7)
    managed.register_consumer("b/b", "Do%ne")
    behind, done = json.loads(headwater("consumers", "list", "orders", "--json").out)
    assert (behind["behind"], done["behind"], done["age_ms"]) == (3, 0, 0)
    first, second = (line.split() for line in headwater("consumers", "list", "orders").out.splitlines()[1:])
    assert first[:4] == ["alice", "Billing", "7", "3"]
    assert second[:5] == ["b/b", "Do%ne", "10", "0", "-"]


def test_skipping_passes_over_what_was_trimmed(headwater, managed: RemoteLog) -> None:
    managed.append([Event("A")] * 10)
    managed.trim(5)
    managed.register_consumer("alice", "Billing", after=0)
    (consumer,) = json.loads(headwater("consumers", "list", "orders", "--json").out)
    assert consumer["behind"] == 6
    assert headwater("consumers", "skip", *WHO, "--events", "2").out == "alice Billing continues after 6\n"


def test_an_unknown_consumer_is_told(headwater, log: RemoteLog) -> None:
    for command in (("skip", "--events", "1"), ("skip",), ("reset", "--after", "0"), ("unregister",)):
        done = headwater("consumers", command[0], *WHO, *command[1:])
        assert (done.code, "no consumer is registered" in done.err) == (REFUSED, True)


def test_ages_are_shown_in_two_units() -> None:
    assert [_duration(s) for s in (0, 59, 3605, 200_000)] == ["0s", "59s", "1h 0m", "2d 7h"]
