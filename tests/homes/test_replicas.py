"""Servers that stand by, as processes: what they answer, for how long, and what becomes of it when they take over."""

from __future__ import annotations

import json
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headwater.amqp.client import Client
from headwater.amqp.protocol.conditions import LinkFault
from headwater.client import connect
from headwater.core import Event
from headwater.core.errors import LogNotFound, NotPrimary, StorageUnavailable
from headwater.core.query import Query
from headwater.flight.client import BulkClient, Ticket
from headwater.formats.arrow.tables import events_of
from headwater.homes.home_secret import SECRET_HEADER, SECRET_KEY, SECRET_KIND
from headwater.storage.state.data_directory import open_state
from tests.ports import free_ports

from ..storage.builders import change, log_directory
from ..waiting import eventually
from .postgres_server import Postgres
from .proxy import Proxy
from .test_servers import Join, Member, command, database, join, url

__all__ = ["database", "join", "url"]


def answer(member: Member, path: str, *, method: str = "GET", body: object = None, **headers: str) -> tuple[int, Any]:
    """The status of a request, and its JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{member.url}{path}", data, headers, method=method)
    if data is not None:
        request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=10) as answered:
            text = answered.read()
            return answered.status, json.loads(text) if text.count(b"\n") < 2 else text
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read()) | {"primary": refused.headers["headwater-primary"]}


def reads(member: Member) -> bool:
    """Whether it is a replica that serves reads."""
    try:
        return answer(member, "/health/ready?role=replica")[0] == 200
    except OSError:
        return False


def knows_primary(member: Member) -> bool:
    """Whether it is such a replica, and knows who is the primary."""
    return reads(member) and "is the primary" in member.unready()


@pytest.fixture
def pair(join: Join) -> Iterator[tuple[Member, Member]]:
    """A primary, and a replica."""
    first = join("a")
    eventually(first.is_primary)
    second = join("b")
    eventually(lambda: knows_primary(second))
    yield first, second


def test_a_replica_answers_what_its_primary_would(pair: tuple[Member, Member]) -> None:
    first, second = pair
    with connect(first.url) as server:
        log = server.log("orders")
        for number in range(20):
            log.append([Event("E" if number % 2 else "F", str(number).encode(), tags=(f"n:{number}",))])
    eventually(lambda: answer(second, "/logs/orders/head")[1]["head"] == 20)
    for path, body in (
        ("/logs", None),
        ("/logs/orders/events/7", None),
        ("/logs/orders/terms?kind=type", None),
        ("/dcb/orders/read?query=all", None),
        ("/logs/orders/read", {"query": {"items": [{"types": ["E"]}]}, "limit": 3}),
        ("/logs/orders/count", {"query": {"items": [{"tags": ["n:3"]}]}}),
    ):
        method = "GET" if body is None else "POST"
        found, expected = (answer(each, path, method=method, body=body) for each in (second, first))
        assert expected[0] == 200, expected
        assert found == expected
    with connect(second.url) as server:
        found_events = list(server.log("orders").read(Query.where(types=["F"])))
    assert [int(each.data) for each in found_events] == list(range(0, 20, 2))
    text = urllib.request.urlopen(f"{second.url}/metrics", timeout=5).read().decode()
    assert "headwater_replica_lag_events 0.0" in text
    assert "headwater_replica_lag_seconds" in text


def test_what_changes_something_is_answered_with_the_primary_where_it_is_not_forwarded(join: Join) -> None:
    first = join("a")
    eventually(first.is_primary)
    second = join("b", "--replica-forward", "false")
    eventually(lambda: knows_primary(second))
    for method, path, body in (
        ("POST", "/logs/orders/append", {"events": [{"type": "E"}]}),
        ("POST", "/logs/orders/trim", {"below": 1}),
        ("PUT", "/logs/other", {}),
        ("DELETE", "/logs/orders", None),
        ("PUT", "/logs/orders/consumers/a/b", {}),
        ("GET", "/O2IMS/anything", None),
        ("GET", "/management/logs", None),
    ):
        status, problem = answer(second, path, method=method, body=body)
        expected = 421
        assert (status, problem["primary"]) == (expected, first.url), path
    status, problem = answer(second, "/health/ready")
    assert status == 503 and first.url in problem["detail"]
    assert answer(second, "/health/ready?role=primary")[0] == 503
    assert answer(first, "/health/ready?role=primary")[0] == 200
    assert answer(first, "/health/ready?role=replica")[0] == 503
    assert answer(first, "/health/ready?role=king")[0] == 400


def test_a_subscription_at_a_replica_goes_on_when_that_becomes_the_primary(pair: tuple[Member, Member]) -> None:
    first, second = pair
    with connect(second.url) as server, server.log("orders").subscribe(after=0) as events:
        assert first.append(0) == 1
        assert next(iter(events)).data == b"0"
        first.end(signal.SIGKILL)
        eventually(second.is_primary)
        assert second.append(1) == 2
        assert next(iter(events)).data == b"1"
    assert answer(second, "/health/ready?role=replica")[0] == 503


def test_who_asks_for_a_number_waits_for_it(pair: tuple[Member, Member]) -> None:
    first, second = pair
    number = first.append(0)
    status, head = answer(second, "/logs/orders/head", **{"headwater-at-least": str(number)})
    assert (status, head["head"]) == (200, number)
    for member in pair:
        began = time.monotonic()
        status, problem = answer(member, "/logs/orders/head", **{"headwater-at-least": str(number + 1)})
        assert (status, problem["type"]) == (503, "urn:headwater:problem:not_here_yet")
        assert time.monotonic() - began >= 2
        assert (problem["wanted"], problem["head"]) == (number + 1, number)
    assert answer(first, "/logs/orders/head", **{"headwater-at-least": "x"})[0] == 400


def test_who_asks_for_a_number_of_a_log_that_was_just_created_waits_for_both(pair: tuple[Member, Member]) -> None:
    first, second = pair
    for name in ("new-1", "new-2", "new-3"):
        assert answer(first, f"/logs/{name}", method="PUT", body={})[0] == 201
        assert answer(first, f"/logs/{name}/append", method="POST", body={"events": [{"type": "E"}]})[0] == 200
        status, head = answer(second, f"/logs/{name}/head", **{"headwater-at-least": "1"})
        assert (status, head["head"]) == (200, 1)
    began = time.monotonic()
    assert answer(second, "/logs/none/head", **{"headwater-at-least": "1"})[0] == 404
    assert time.monotonic() - began >= 2
    assert answer(second, "/logs/none/head", **{"headwater-at-least": "x"})[0] == 400


def test_a_log_that_a_replica_lacks_is_asked_of_the_primary(join: Join) -> None:
    """It cannot know whether it was created a moment ago; so who writes to it does not hear that there is none."""
    primary = join("a")
    eventually(primary.is_primary)
    replica = join("b", "--replica-forward", "false")
    eventually(lambda: knows_primary(replica))
    for method, path in (("GET", "/logs/nowhere/head"), ("GET", "/logs/nowhere"), ("POST", "/logs/nowhere/read")):
        status, told = answer(replica, path, method=method, body={} if method == "POST" else None)
        assert (status, told["primary"]) == (421, primary.url)
        assert "this replica has no log 'nowhere'; ask the primary" in told["detail"]
    assert answer(primary, "/logs/nowhere/head")[0] == 404
    with connect(f"{replica.url},{primary.url}", retry_s=0) as either, pytest.raises(LogNotFound):
        either.log("nowhere").append([Event("E")])
    with connect(primary.url) as server:
        server.ensure("new")
    with connect(f"{replica.url},{primary.url}", retry_s=0) as either:
        assert either.log("new").append([Event("E")]).first == 1


def test_a_replica_that_is_cut_off_stops_to_serve_and_says_so(
    join: Join, url: str, database: Postgres, tmp_path: Path
) -> None:
    first = join("a")
    eventually(first.is_primary)
    assert first.append(0) == 1
    proxy = Proxy(database.port)
    [port] = free_ports(1)
    second = Member(
        proxy.before(url), tmp_path / "b", "--replica-stale-ms-max", "3000",
        "--flight-port", str(port), "--flight-start", "at_once",
    )  # fmt: skip
    bulk = BulkClient(f"grpc://127.0.0.1:{port}")
    try:
        eventually(lambda: reads(second))
        assert bulk.head("orders").head == 1
        proxy.stop()
        assert answer(second, "/logs/orders/head")[1]["head"] == 1
        eventually(lambda: not reads(second))
        status, problem = answer(second, "/logs/orders/head")
        assert status == 503
        assert "has not caught up with its home" in problem["detail"]
        with BulkClient(f"grpc://127.0.0.1:{port}", retries=0) as once:
            for ask in (lambda: once.head("orders"), lambda: list(once.read(Ticket("orders"))), once.logs):
                with pytest.raises(StorageUnavailable, match="has not caught up with its home"):
                    ask()
        [lag] = re.findall(r"^headwater_replica_lag_seconds (.*)$", metrics(second), re.MULTILINE)
        assert float(lag) > 3
    finally:
        bulk.close()
        second.close()
        proxy.close()


def test_a_log_that_cannot_be_followed_is_named_and_others_are_served(join: Join, url: str, tmp_path: Path) -> None:
    first = join("a")
    eventually(first.is_primary)
    with connect(first.url) as server:
        for name in ("orders", "others"):
            server.create(name).append([Event("E", b"0")])
    with psycopg.connect(url, autocommit=True) as connection:
        key = connection.execute("SELECT key FROM headwater.log JOIN headwater.frame ON log = id WHERE key <> '$state'"
                                 " ORDER BY last, id LIMIT 1").fetchone()  # fmt: skip
        assert key is not None
        connection.execute(
            "UPDATE headwater.frame SET content = set_byte(content, 200, get_byte(content, 200) # 1) FROM headwater.log"
            " WHERE log = id AND key = %s", key,
        )  # fmt: skip
    second = Member(url, tmp_path / "b", "--replica-stale-ms-max", "4000")
    try:
        eventually(lambda: reads(second))
        told = "log orders has not been followed for"
        problem: dict[str, Any] = {}

        def is_told() -> bool:
            problem.update(answer(second, "/logs/orders/head")[1])
            return told in problem.get("detail", "")

        eventually(is_told, lambda: problem)
        assert problem["status"] == 503
        assert "is damaged in the home" in problem["detail"] and "restore the database" in problem["detail"]
        assert answer(second, "/logs/others/events/1")[0] == 200
        ready = answer(second, "/health/ready?role=replica")
        assert ready[0] == 200 and "log orders cannot be followed" in ready[1]["troubles"][0]
        shown = metrics(second)
        assert "headwater_replica_logs_stuck 1.0" in shown and 'headwater_log_up{log="orders"} 0.0' in shown
        assert 'headwater_log_up{log="others"} 1.0' in shown
        with Client(second.reading) as client:
            with pytest.raises(LinkFault, match=told):
                client.receiver("orders")
            assert client.receiver("others").link.is_attached
    finally:
        second.close()


@pytest.mark.parametrize("where", ["replica", "primary"])
def test_damaged_events_of_a_server_are_fetched_from_the_home_while_it_serves(
    join: Join, url: str, tmp_path: Path, where: str
) -> None:
    first = join("a")
    eventually(first.is_primary)
    events = [Event("E", b"event %d" % number) for number in range(3000)]
    with connect(first.url) as server:
        for at in range(0, 3000, 100):
            server.log("orders").append(events[at : at + 100])
    second = join("b")
    eventually(lambda: reads(second) and answer(second, "/logs/orders/head")[1].get("head") == 3000)
    sealed = [(log_directory(tmp_path / each) / "idx").glob for each in "ab"]
    eventually(lambda: all(list(glob("*.places")) for glob in sealed))  # an opening does not read that segment
    second.end(signal.SIGTERM)
    if where == "primary":
        first.end(signal.SIGTERM)
    name = "b" if where == "replica" else "a"
    path = min((log_directory(tmp_path / name) / "log").glob("*.log"))
    content = path.read_bytes()
    change(path, content.index(b"event 77"), b"avent")
    again = Member(url, tmp_path / name)
    try:
        eventually(lambda: reads(again) if where == "replica" else again.is_primary())
        found = answer(again, "/logs/orders/events/78")
        assert found[0] == 500 and "log is damaged" in found[1]["detail"], found
        eventually(lambda: "headwater_scrub_mended_total 1.0" in metrics(again))
        assert again.contents() == [each.data for each in events]
        assert path.read_bytes() == content
        shown = metrics(again)
        assert "headwater_scrub_damaged 0.0" in shown and 'headwater_log_up{log="orders"} 1.0' in shown
    finally:
        again.close()


def test_arrow_flight_reads_at_a_replica_and_is_refused_to_write(join: Join, url: str, tmp_path: Path) -> None:
    first = join("a")
    eventually(first.is_primary)
    for number in range(30):
        first.append(number)
    [port] = free_ports(1)
    second = Member(url, tmp_path / "b", "--flight-port", str(port), "--flight-start", "at_once")
    try:
        eventually(lambda: reads(second))
        with BulkClient(f"grpc://127.0.0.1:{port}") as bulk, connect(first.url) as server:
            log = server.log("orders")
            read = [each for batch in bulk.read(Ticket("orders")) for each in events_of(batch)]
            assert read == list(log.read())
            first.append(30)
            eventually(lambda: bulk.head("orders").head == 31)
            assert len([each for batch in bulk.read(Ticket("orders", after=29)) for each in events_of(batch)]) == 2
        rows = pa.record_batch({"type": pa.array(["E"]), "data": pa.array([b""], pa.binary())})
        with BulkClient(f"grpc://127.0.0.1:{port}", retries=0) as once:
            with pytest.raises(NotPrimary):
                once.append("orders", [rows])
            with pytest.raises(NotPrimary):
                once.trim("orders", 3)
    finally:
        second.close()


def test_arrow_flight_writes_through_a_list_of_addresses_and_reads_on_when_the_primary_dies(
    url: str, tmp_path: Path
) -> None:
    """The replica is asked first: it refuses what is the primary's, stages included, and serves what it has."""
    primary_port, replica_port = free_ports(2)
    at_once = ("--flight-start", "at_once")
    first = Member(url, tmp_path / "a", "--flight-port", str(primary_port), *at_once)
    second: Member | None = None
    try:
        eventually(first.is_primary)
        second = replica = Member(url, tmp_path / "b", "--flight-port", str(replica_port), *at_once)
        eventually(lambda: reads(replica))
        replica_url, primary_url = f"grpc://127.0.0.1:{replica_port}", f"grpc://127.0.0.1:{primary_port}"
        rows = pa.record_batch({"type": pa.array(["E"] * 10), "data": pa.array([b""] * 10, pa.binary())})
        with BulkClient(replica_url, retries=0) as alone:
            for refused in (
                lambda: alone.stage("orders", "job", 0, 0, 0, [rows]),
                lambda: alone.commit("orders", "job", 0, []),
                lambda: alone.discard("orders", "job", 0),
            ):
                with pytest.raises(NotPrimary):
                    refused()
        with BulkClient(f"{replica_url},{primary_url}", retries=60) as bulk:
            assert bulk.head("orders").head == 0 and bulk.url == replica_url
            bulk.create_log("new")
            assert bulk.append("new", [rows])[0].last == 10 and bulk.url == primary_url
            staged = bulk.stage("orders", "job", 0, 0, 0, [rows])
            assert bulk.commit("orders", "job", 0, [staged.stage]).last == 10
            first.end(signal.SIGKILL)
            for log in ("orders", "new"):
                assert sum(batch.num_rows for batch in bulk.read(Ticket(log))) == 10
            assert bulk.url == replica_url
            staged = bulk.stage("orders", "job", 1, 0, 0, [rows])  # when it is the primary
            assert bulk.commit("orders", "job", 1, [staged.stage]).last == 20
            assert bulk.commit("orders", "job", 0, []).was_applied
    finally:
        for member in filter(None, (first, second)):
            member.close()


def test_a_replica_hears_of_appends_at_once_and_no_stranger_does(pair: tuple[Member, Member]) -> None:
    first, second = pair
    with connect(second.url) as server, server.log("orders").subscribe(after=0) as events:
        for number in range(5):  # the first one may be the home's to tell
            assert first.append(number) == number + 1
            assert next(iter(events)).data == str(number).encode()
        eventually(lambda: "headwater_replica_is_told 1.0" in metrics(second))
        with connect(first.url) as primary:
            log = primary.log("orders")
            for number in range(5, 105):
                log.append([Event("E", str(number).encode())])
        assert [int(next(iter(events)).data) for _ in range(100)] == list(range(5, 105))
    assert answer(first, "/home/frames")[0] == 403
    assert answer(first, "/home/frames", **{"headwater-home-secret": "0" * 64})[0] == 403
    assert answer(first, "/home/others", **{"headwater-home-secret": "0" * 64})[0] == 404


def test_the_secret_of_the_home_is_renewed_while_its_servers_run(pair: tuple[Member, Member], tmp_path: Path) -> None:
    first, second = pair
    eventually(lambda: "headwater_replica_is_told 1.0" in metrics(second))
    old = secret_at(tmp_path / "a")
    with stranger(first, old) as listening:
        assert "is a replica; run this on the primary's machine" in command(
            "home", "renew-secret", "--data", str(tmp_path / "b"), expected=4
        )
        assert secret_at(tmp_path / "a") == old
        assert "has a new secret" in command("home", "renew-secret", "--data", str(tmp_path / "a"))
        new = secret_at(tmp_path / "a")
        assert new != old
        told = listening.read()  # it ends
        assert new not in told and old not in told  # who had the old one did not hear of the new one
    assert answer(first, "/home/frames", **{"headwater-home-secret": old.decode()})[0] == 403
    eventually(lambda: secret_at(tmp_path / "b") == new)
    with connect(second.url) as server, server.log("orders").subscribe(after=0) as events:
        eventually(lambda: "headwater_replica_is_told 1.0" in metrics(second))
        assert first.append(0) == 1
        assert next(iter(events)).data == b"0"
    first.end(signal.SIGKILL)  # the next primary knows the new one, and nobody else's
    eventually(second.is_primary)
    assert answer(second, "/home/frames", **{"headwater-home-secret": old.decode()})[0] == 403
    with stranger(second, new) as listening:
        assert listening.status == 200
    assert "is not a copy of a home" in command("home", "renew-secret", "--data", str(tmp_path / "none"), expected=4)


def secret_at(copy: Path) -> bytes:
    """As the server of that copy has it."""
    with closing(open_state(copy)) as state:
        entry = state.get(SECRET_KIND, SECRET_KEY)
    assert entry is not None
    return entry.value


def stranger(member: Member, secret: bytes) -> Any:
    """Somebody who listens to a primary, as a replica does."""
    request = urllib.request.Request(f"{member.url}/home/frames", headers={SECRET_HEADER.decode(): secret.decode()})
    return urllib.request.urlopen(request, timeout=30)


def metrics(member: Member) -> str:
    with urllib.request.urlopen(f"{member.url}/metrics", timeout=5) as answered:
        text: str = answered.read().decode()
    return text
