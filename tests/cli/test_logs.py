import json

from headwater.cli.main import REFUSED
from headwater.client import RemoteLog
from headwater.core import Event


def test_logs_are_created_listed_changed_and_deleted(headwater) -> None:
    created = json.loads(headwater("logs", "create", "wide", "--partitions", "3", "--json").out)
    assert created["settings"]["partitions"] == 3
    changed = json.loads(headwater("logs", "set", "wide", "--retention-ms", "1000", "--no-history", "--json").out)
    assert (changed["settings"]["retention_ms"], changed["settings"]["keeps_history"]) == (1000, False)
    assert [info["name"] for info in json.loads(headwater("logs", "list", "--json").out)] == ["wide"]
    assert headwater("logs").out.splitlines()[1].split() == ["wide", "0", "1", "0", "3", "0"]
    assert "keeps_history" in (shown := headwater("logs", "show", "wide").out) and "retention  " not in shown
    assert headwater("logs", "delete", "wide", "--yes").out == "deleted wide\n"
    assert headwater("logs", "list", "--json").out == "[]\n"


def test_a_log_that_keeps_everything_says_so(headwater, log: RemoteLog) -> None:
    assert ["retention", "none"] in [line.split() for line in headwater("logs", "show", "orders").out.splitlines()]


def test_settings_that_are_fixed_are_refused(headwater, log: RemoteLog) -> None:
    done = headwater("logs", "create", "orders", "--partitions", "2")
    assert (done.code, done.err) == (REFUSED, "headwater: log 'orders' already exists\n")


def test_a_log_is_trimmed_as_far_as_its_consumers_allow(headwater, log: RemoteLog) -> None:
    log.append([Event("A")] * 10)
    log.register_consumer("spark", "archiver", after=4)
    assert headwater("logs", "trim", "orders", "--below", "8", "--yes").out == "orders now starts at 5\n"
    held = json.loads(headwater("logs", "trim", "orders", "--below", "8", "--json").out)
    assert (held["first_retained"], [each["component"] for each in held["held_by"]]) == (5, ["archiver"])
    assert [(each.owner, each.acknowledged) for each in log.consumers()] == [("spark", 4)]
    assert headwater("consumers", "reset", "orders", "spark", "archiver", "--after", "9").code == 0
    assert json.loads(headwater("logs", "trim", "orders", "--below", "8", "--yes", "--json").out) == {
        "first_retained": 8,
        "held_by": [],
    }
    assert headwater("consumers", "unregister", "orders", "spark", "archiver").code == 0
    assert log.consumers() == []
