"""The count of files and calls of each way: that every way is counted, and that growth is named."""

from __future__ import annotations

from pathlib import Path

from .counting import Way, growth, least, measured

ON_THE_WAY = {
    "HTTP append": {"dcb/appends/append.py", "storage/append/sequencer.py"},
    "HTTP read": {"dcb/reads/read.py", "storage/read/reader.py"},
    "AMQP in": {"amqp/streams/producer.py", "storage/append/sequencer.py"},
    "AMQP out": {"amqp/streams/consumer.py"},
    "FutoIn add": {"futoin/websocket.py", "storage/append/sequencer.py"},
    "FutoIn poll": {"futoin/calls.py"},
    "CNE post": {"cne/publishers.py", "storage/append/sequencer.py"},
    "CNE post and webhook": {"cne/publishers.py", "cne/delivery/webhook.py"},
    "Flight put": {"flight/server/writes.py", "server/bulk/link.py", "storage/append/sequencer.py"},
    "Flight get": {"flight/server/reads.py", "server/bulk/backend.py"},
}

IDLE_S = 2.0
"""What an idle server does once a second is counted as that, and not as ten times as much."""


def test_each_way_is_counted_in_all_processes_and_threads(tmp_path: Path) -> None:
    found = measured(tmp_path, events=5, runs=1, idle_s=IDLE_S)
    assert found.keys() == ON_THE_WAY.keys()
    for name, files in ON_THE_WAY.items():
        assert files <= set(found[name].files), f"{name}: {found[name].files}"
        assert found[name].calls > len(files)


def test_a_file_that_is_not_in_every_run_is_not_on_the_way() -> None:
    assert least([{"a.py": 30.0, "b.py": 1.0}, {"a.py": 20.0, "c.py": 9.0}], 10) == Way(("a.py",), 2.0)


def test_more_files_and_more_calls_are_named() -> None:
    before = {"in": Way(("a.py", "b.py"), 100.0), "out": Way(("a.py",), 10.0)}
    assert growth(before, {"in": Way(("c.py", "d.py"), 101.0), "out": Way(("a.py",), 9.0), "new": Way((), 9.0)}) == []
    assert growth(before, {"in": Way(("a.py", "b.py", "c.py"), 100.0), "out": Way(("a.py",), 11.0)}) == [
        "in: 3 files, 2 before; new are c.py",
        "out: 11.0 calls per event, 10.0 before",
    ]
