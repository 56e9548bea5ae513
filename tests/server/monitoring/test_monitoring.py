"""What an operator sees of a server from outside: metrics and events of logs, of the disk and of the process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headwater.client import connect
from headwater.core.errors import StorageCorrupted
from headwater.core.event import Event
from headwater.flight.client import BulkClient, Ticket
from tests.waiting import eventually

from ..bulk.test_bulk import WITH_FLIGHT
from ..running import RunningServer


def metrics(server: RunningServer) -> dict[str, float]:
    """The samples of `/metrics`, by name and the values of their labels."""
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(server.ask("/metrics")[1])
        for sample in family.samples
    }


def unavailable(server: RunningServer) -> dict[str, str]:
    """What the kept events say of unavailable logs, by the log."""
    with connect(server.url) as client:
        kept = [json.loads(event.data) for event in client.log("$system").read()]
    found = [each for each in kept if each["eventType"] == "io.headwater.log.unavailable"]
    assert len({each["log"] for each in found}) == len(found), "each is told once"
    return {each["log"]: each["problem"] for each in found}


def flip(content: Path, text: bytes) -> None:
    """Change a bit of that text in a file."""
    changed = bytearray(content.read_bytes())
    changed[changed.index(text)] ^= 1
    content.write_bytes(changed)


def test_damaged_and_missing_logs_are_seen_in_metrics_and_events(tmp_path: Path) -> None:
    names = ("missing", "read", "unopened", "whole")
    arguments = ("--data", "data", "--management-keep", *(part for name in names for part in ("--log", name)))
    with RunningServer(*arguments, cwd=tmp_path) as server:
        with connect(server.url) as client:
            for _ in range(10):
                client.log("read").append([Event("Taken", b"of the log read" + bytes(2**20 - 100))])
            client.log("unopened").append([Event("Taken", b"of the log unopened")])
        eventually(
            lambda: list(tmp_path.glob("data/logs/read.*/idx/*.places"))
        )  # written last; then an opening does not read the segment
        assert metrics(server)["headwater_log_up read"] == 1
        assert server.terminate() == 0
    flip(min(tmp_path.glob("data/logs/read.*/log/*.log")), b"of the log read")
    flip(min(tmp_path.glob("data/logs/unopened.*/log/*.log")), b"of the log unopened")
    [missing] = tmp_path.glob("data/logs/missing.*")
    shutil.rmtree(missing)
    with RunningServer(*arguments, cwd=tmp_path) as server:
        asked = {name: server.ask(f"/logs/{name}/head")[0] for name in names}
        assert asked == {"missing": 500, "read": 200, "unopened": 500, "whole": 200}
        assert metrics(server)["headwater_log_up read"] == 1
        assert server.ask("/logs/read/read", b'{"query": "all"}')[0] == 500
        found = metrics(server)
        standings = {name: found.get(f"headwater_log_up {name}") for name in names}
        assert standings == {"missing": 0, "read": 0, "unopened": 0, "whole": 1}
        eventually(lambda: unavailable(server).keys() == {"missing", "read", "unopened"})
        told = unavailable(server)
        assert "events 1 to 1 are damaged" in told["read"] and "accept-loss" in told["read"]
        assert "are damaged" in told["unopened"] and "is missing" in told["missing"]
        troubles = json.loads(server.ask("/health/ready")[1])["troubles"]
        assert [each.partition(";")[0] for each in troubles] == [
            "log missing is stopped",
            "log unopened is stopped",
            "log read has damaged events",
        ]
        assert server.terminate() == 0


def test_damage_that_only_a_reader_over_flight_finds_is_seen_in_metrics_and_events(tmp_path: Path) -> None:
    arguments = ("--data", "data", "--management-keep", "--log", "read")
    with RunningServer(*arguments, cwd=tmp_path) as server:
        with connect(server.url) as client:
            for _ in range(10):
                client.log("read").append([Event("Taken", b"of the log read" + bytes(2**20 - 100))])
        eventually(lambda: list(tmp_path.glob("data/logs/read.*/idx/*.places")))
        assert server.terminate() == 0
    flip(min(tmp_path.glob("data/logs/read.*/log/*.log")), b"of the log read")
    with RunningServer(*arguments, *WITH_FLIGHT, cwd=tmp_path) as server:
        with BulkClient(server.further_url("grpc")) as bulk, pytest.raises(StorageCorrupted):
            list(bulk.read(Ticket("read")))
        eventually(lambda: metrics(server)["headwater_log_up read"] == 0)
        eventually(lambda: unavailable(server).keys() == {"read"})
        assert "events 1 to 1 are damaged" in unavailable(server)["read"]
        assert server.terminate() == 0


def test_the_process_and_the_size_of_the_disk_are_in_the_metrics(tmp_path: Path) -> None:
    with RunningServer("--data", "data", cwd=tmp_path) as server:
        found = metrics(server)
    assert found["process_resident_memory_bytes"] > 0 and found["process_cpu_seconds_total"] > 0
    assert found["process_open_fds"] < found["process_max_fds"]
    assert 0 < found["headwater_disk_free_bytes"] <= found["headwater_disk_size_bytes"]
