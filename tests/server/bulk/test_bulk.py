"""The bulk process beside a real server: what it serves, what becomes of it, and what its death costs others."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from headwater.client import connect
from headwater.core.access import Forbidden, Unauthenticated
from headwater.core.condition import AppendCondition
from headwater.core.errors import AppendConditionFailed, LogNotFound, PositionTrimmed
from headwater.core.event import Event
from headwater.core.query import ALL, Query
from headwater.flight.client import BulkClient, Ticket
from headwater.flight.errors import ServerFault
from headwater.formats.arrow.tables import events_of
from tests.waiting import eventually

from ..running import RunningServer, headwater
from ..starting import PROGRAM

WITH_FLIGHT = ("--flight-enabled", "true", "--flight-port", "0", "--flight-start", "at_once")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer("--data", "data", "--log", "orders", *WITH_FLIGHT, cwd=tmp_path) as running:
        yield running


def events(count: int, start: int = 0) -> list[Event]:
    return [
        Event("OrderPlaced", b"{}", (f"order:{number}",), f"id-{number}", "shop")
        for number in range(start, start + count)
    ]


def rows(count: int, start: int = 0) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "type": pa.array(["OrderPlaced"] * count),
            "data": pa.array([b"{}"] * count, pa.binary()),
            "tags": pa.array([[f"order:{number}"] for number in range(start, start + count)], pa.list_(pa.string())),
            "id": pa.array([f"id-{number}" for number in range(start, start + count)]),
            "source": pa.array(["shop"] * count),
        }
    )


def bulk_pid(server: RunningServer) -> int:
    return int(Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()[0])


def test_what_http_appends_flight_reads_the_same(server):
    with connect(server.url) as http, BulkClient(server.further_url("grpc")) as bulk:
        log = http.log("orders")
        for start in range(0, 300, 100):
            log.append(events(100, start))
        read = [event for batch in bulk.read(Ticket("orders")) for event in events_of(batch)]
        assert read == list(log.read())
        assert bulk.info("orders") == log.info()


def test_what_flight_appends_http_reads_and_conditions_see(server):
    with connect(server.url) as http, BulkClient(server.further_url("grpc")) as bulk:
        [appended] = bulk.append("orders", [rows(100)])
        assert (appended.first, appended.last) == (1, 100)
        assert [event.id for event in http.log("orders").read()] == [f"id-{number}" for number in range(100)]
        with pytest.raises(AppendConditionFailed) as failed:
            http.log("orders").append(events(1, 500), AppendCondition(Query.where(tags=["order:7"])))
        assert failed.value.conflict == 8
        with pytest.raises(AppendConditionFailed) as failed:
            bulk.append("orders", [rows(1, 500)], condition=AppendCondition(ALL, 99))
        assert failed.value.conflict == 100


def test_known_ids_are_skipped_where_that_is_asked_for(server):
    with BulkClient(server.further_url("grpc")) as bulk:
        bulk.append("orders", [rows(10)])
        [appended] = bulk.append("orders", [rows(10, 5)], on_duplicate="skip")
        assert (appended.first, appended.last, appended.skipped) == (11, 15, 5)
        [nothing] = bulk.append("orders", [rows(15)], on_duplicate="skip")
        assert (nothing.first, nothing.last, nothing.skipped) == (0, 0, 15)


def test_staged_batch_is_committed_once_over_a_restart(tmp_path):
    with RunningServer("--data", "data", "--log", "orders", *WITH_FLIGHT, cwd=tmp_path, program=PROGRAM) as first:
        with BulkClient(first.further_url("grpc")) as bulk:
            stages = [bulk.stage("orders", "w", 0, part, 0, [rows(50, 50 * part)]).stage for part in range(2)]
        first.process.kill()
        first.process.wait()
    with RunningServer(  # noqa: SIM117 - one is of the other
        "--data", "data", *WITH_FLIGHT, cwd=tmp_path, program=PROGRAM
    ) as second:
        with BulkClient(second.further_url("grpc")) as bulk:
            committed = bulk.commit("orders", "w", 0, stages)
            assert (committed.first, committed.last, committed.events, committed.was_applied) == (1, 100, 100, False)
            again = bulk.commit("orders", "w", 0, stages)
            assert (again.first, again.last, again.was_applied) == (1, 100, True)
            assert bulk.head("orders").head == 100
            state = bulk.writer("orders", "w")
            assert state is not None and (state.batch, state.is_complete) == (0, True)


def test_large_parts_that_are_staged_side_by_side_become_segments(tmp_path):
    def stage(part: int) -> str:
        batches = [
            rows(10_000, start).set_column(1, "data", pa.array([b"x" * 900] * 10_000, pa.binary()))
            for start in range(100_000 * part, 100_000 * part + 20_000, 10_000)
        ]
        with BulkClient(url) as own:
            return own.stage("orders", "w", 0, part, 0, batches).stage

    with RunningServer("--data", "data", "--log", "orders", *WITH_FLIGHT, cwd=tmp_path) as first:
        url = first.further_url("grpc")
        with connect(first.url) as http, ThreadPoolExecutor(2) as pool:
            http.log("orders").append(events(1, 900_000))
            stages = list(pool.map(stage, range(2)))
            inodes = {path.stat().st_ino for path in tmp_path.glob("data/logs/*/staged/*/*/*.segment")}
            with BulkClient(url) as bulk:
                committed = bulk.commit("orders", "w", 0, stages)
                assert (committed.first, committed.last, committed.events) == (2, 40_001, 40_000)
                ids = [id for batch in bulk.read(Ticket("orders", columns=["id"])) for id in batch["id"].to_pylist()]
            numbers = [900_000, *range(20_000), *range(100_000, 120_000)]
            assert ids == [f"id-{number}" for number in numbers]
            found = list(http.log("orders").read(Query.where(tags=["order:100007"])))
            assert [(each.sequence_number, each.data) for each in found] == [(20_009, b"x" * 900)]
        assert {path.stat().st_ino for path in tmp_path.glob("data/logs/*/log/*.log")} > inodes and len(inodes) == 2
        first.process.kill()
        first.process.wait()
    with RunningServer("--data", "data", *WITH_FLIGHT, cwd=tmp_path) as second:  # noqa: SIM117 - one is of the other
        with BulkClient(second.further_url("grpc")) as bulk:
            again = bulk.commit("orders", "w", 0, stages)
            assert (again.first, again.last, again.was_applied) == (2, 40_001, True)


def test_consumers_are_those_of_every_other_protocol(server):
    with connect(server.url) as http, BulkClient(server.further_url("grpc")) as bulk:
        bulk.append("orders", [rows(10)])
        registered = bulk.register_consumer("orders", "spark", "ARCHIVER", after=0)
        bulk.acknowledge("orders", "spark", "ARCHIVER", 7, epoch=registered.epoch)
        [consumer] = http.log("orders").consumers()
        assert (consumer.owner, consumer.component, consumer.acknowledged) == ("spark", "ARCHIVER", 7)
        assert bulk.trim("orders", 11) == 8
        with pytest.raises(PositionTrimmed):
            list(bulk.read(Ticket("orders", after=0)))
        assert bulk.count("orders") == 3


def test_death_of_the_bulk_process_costs_nobody_else_anything(server):
    url = server.further_url("grpc")
    with connect(server.url) as http, BulkClient(url) as bulk:
        log = http.log("orders")
        log.append(events(10))
        assert bulk.head("orders").head == 10
        before = bulk_pid(server)
        os.kill(before, signal.SIGKILL)
        log.append(events(10, 10))
        eventually(lambda: bulk.head("orders").head == 20)  # on the same port
        assert bulk_pid(server) != before
        with urllib.request.urlopen(f"{server.url}/metrics") as answer:
            told = answer.read().decode()
        assert "headwater_bulk_up 1.0" in told
        assert "headwater_bulk_deaths_total 1.0" in told
        assert sum(batch.num_rows for batch in bulk.read(Ticket("orders"))) == 20


def test_client_with_much_to_say_about_its_columns_costs_nobody_else_anything(server):
    url = server.further_url("grpc")
    wordy = rows(1).replace_schema_metadata({"remark": "x" * 50_000_000})
    with connect(server.url) as http, BulkClient(url) as bulk:
        http.log("orders").append(events(10, 10))
        pid = bulk_pid(server)
        with flight.connect(url) as client, pytest.raises(flight.FlightServerError, match="too_large"):
            descriptor = flight.FlightDescriptor.for_command(b'{"append":{"log":"orders"}}')
            writer, reader = client.do_put(descriptor, wordy.schema)
            writer.write_batch(wordy)
            reader.read()
            writer.close()
        assert bulk.head("orders").head == 10
        assert bulk_pid(server) == pid


def test_bulk_process_leaves_when_its_server_is_killed(server):
    server.further_url("grpc")
    pid = bulk_pid(server)
    server.process.kill()
    server.process.wait()
    eventually(lambda: not Path(f"/proc/{pid}").exists())


def test_memory_that_runs_out_ends_the_bulk_process_before_the_server(server):
    server.further_url("grpc")
    assert int(Path(f"/proc/{bulk_pid(server)}/oom_score_adj").read_text()) >= 500


def test_server_stops_both_in_order(server):
    server.further_url("grpc")
    pid = bulk_pid(server)
    assert server.terminate() == 0
    assert not Path(f"/proc/{pid}").exists()


def test_a_port_that_another_server_has_is_told(server, tmp_path):
    """gRPC servers share a port in silence; ours does not."""
    port = server.further_url("grpc").rpartition(":")[2]
    refused = headwater(
        "serve", "--http-port", "0", "--amqp-port", "0", "--flight-port", port, "--data", "other", cwd=tmp_path
    )
    assert refused.returncode != 0
    assert f"cannot listen on 127.0.0.1 port {port}" in refused.stderr and "--flight-port" in refused.stderr


@pytest.mark.parametrize("options", [("--flight-enabled", "false"), ("--storage", "memory")])
def test_there_may_be_none(tmp_path, options):
    with RunningServer("--data", "data", "--flight-enabled", "true", "--flight-port", "0", *options, cwd=tmp_path) as s:
        with connect(s.url) as http:
            http.log("default").append(events(1))
        assert s.terminate() == 0
        assert s.process.stdout is not None
        assert "grpc" not in s.process.stdout.read()


def test_users_and_rights_are_those_of_the_server(tmp_path):
    for name, grant in (("ann", "read:*"), ("bob", "read,append:orders")):
        added = headwater("user", "add", name, "--grant", grant, "--password-stdin", "--data", "data", cwd=tmp_path,
                          stdin=f"secret-of-{name}\n")  # fmt: skip
        assert added.returncode == 0, added.stderr
    with RunningServer("--data", "data", "--log", "orders", *WITH_FLIGHT, cwd=tmp_path) as server:
        url = server.further_url("grpc")
        with BulkClient(url) as nobody, pytest.raises(Unauthenticated):
            nobody.head("orders")
        with BulkClient(url, user="ann", password="wrong") as wrong, pytest.raises(Unauthenticated):
            wrong.head("orders")
        with BulkClient(url, user="bob", password="secret-of-bob") as bob:
            bob.append("orders", [rows(3)])
            with pytest.raises(Forbidden):
                bob.trim("orders", 2)
            with pytest.raises((LogNotFound, Forbidden)):
                bob.head("others")
        with BulkClient(url, user="ann", password="secret-of-ann") as ann:
            assert ann.count("orders") == 3
            with pytest.raises(Forbidden):
                ann.append("orders", [rows(1, 9)])


def test_a_changed_password_and_a_removed_user_end_their_sessions(tmp_path):
    def user(*arguments: str, stdin: str = "") -> None:
        done = headwater("user", *arguments, "--data", "data", cwd=tmp_path, stdin=stdin)
        assert done.returncode == 0, done.stderr

    def asks(client: flight.FlightClient, options: flight.FlightCallOptions) -> bool:
        try:
            list(client.do_action(flight.Action("logs", b""), options))
        except flight.FlightUnauthenticatedError:
            return False
        return True

    user("add", "root", "--grant", "all:*", "--password-stdin", stdin="secret-of-root\n")
    with RunningServer("--data", "data", "--log", "orders", *WITH_FLIGHT, cwd=tmp_path) as server:
        client = flight.FlightClient(server.further_url("grpc"))
        for end in (
            lambda: user("add", "ann", "--grant", "read:*", "--password-stdin", "--replace", stdin="another-one\n"),
            lambda: user("remove", "ann"),
        ):
            user("add", "ann", "--grant", "read:*", "--password-stdin", "--replace", stdin="secret-of-ann\n")
            eventually(lambda: server.ask("/logs", headers=login("ann", "secret-of-ann"))[0] == 200)
            options = flight.FlightCallOptions(headers=[client.authenticate_basic_token("ann", "secret-of-ann")])
            assert asks(client, options)
            end()
            eventually(lambda options=options: not asks(client, options))
            with pytest.raises(flight.FlightUnauthenticatedError):
                client.authenticate_basic_token("ann", "secret-of-ann")
        client.close()


def login(name: str, password: str) -> dict[str, str]:
    return {"authorization": f"Basic {b64encode(f'{name}:{password}'.encode()).decode()}"}


def test_a_stream_that_nobody_takes_is_a_reader_and_can_be_ended(server):
    def readers() -> list[dict[str, object]]:
        body = json.loads(server.ask("/management/reader")[1])
        return [dict(zip(body["attributeNames"], row, strict=True)) for row in body["results"]]

    with connect(server.url) as http, BulkClient(server.further_url("grpc")) as bulk:
        log = http.log("orders")
        for _ in range(64):
            log.append([Event("Large", os.urandom(900_000))])
        stream = bulk.read(Ticket("orders", query="type=Large"))
        next(stream)
        eventually(lambda: len(readers()) == 1, readers)
        [reader] = readers()
        assert (reader["protocol"], reader["log"], reader["peer"]) == ("flight", "orders", "127.0.0.1")
        assert (reader["wants"], reader["waitsFor"], reader["position"]) == ("type=Large", "reading", None)
        request = urllib.request.Request(f"{server.url}/management/reader/{reader['name']}", method="DELETE")
        urllib.request.urlopen(request).close()
        with pytest.raises(ServerFault, match="closed by an administrator"):
            list(stream)
        eventually(lambda: readers() == [], readers)
