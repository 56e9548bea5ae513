"""Servers that share a home, as processes: one appends, the others stand by, and go on where it ends."""

from __future__ import annotations

import io
import json
import re
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as websocket

from headwater.amqp.client import Client
from headwater.amqp.protocol.conditions import AmqpError
from headwater.cli.main import run
from headwater.client import connect
from headwater.core import Event
from headwater.core.errors import EventLogError
from headwater.core.query import Query
from headwater.core.settings import SYSTEM_LOG
from headwater.core.watch.notification_types import NotificationType
from headwater.formats.clients.retry import ServerUnreachable
from headwater.storage.catalog.directories import RESTORE_JUMP
from tests.ports import free_ports
from tests.server.starting import start

from ..amqp.asking import EARLIEST, drained, numbers
from ..waiting import eventually
from .postgres_server import Postgres, drop_home, postgres
from .proxy import Proxy

LEASE_MS = "1500"
PATIENCE_S = 60
IMPATIENT = [
    sys.executable,
    "-c",
    "from headwater.cli.main import main; from headwater.homes.postgres.home import PostgresHome; "
    "PostgresHome.__init__.__kwdefaults__.update(overdue_s=1.0, silence_s=2.0); main()",
]
"""A server that waits less for a home which does not answer."""
SERVE = ("serve", "--http-port", "0", "--amqp-port", "0", "--flight-enabled", "false")
"""On ports that are free."""


def command(*arguments: str, expected: int = 0) -> str:
    """What a command prints."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        code = run(arguments)
    assert code == expected, printed.getvalue()
    return printed.getvalue()


class Member:
    """One server of a home."""

    def __init__(
        self,
        url: str,
        directory: Path,
        *settings: str,
        lease_ms: str = LEASE_MS,
        program: Sequence[str] | None = None,
    ) -> None:
        """`program`: a real command instead of a fork."""
        self.port, self.amqp_port, self.read_port = free_ports(3)
        self.home = url
        self.url, self.amqp = f"http://127.0.0.1:{self.port}", f"amqp://127.0.0.1:{self.amqp_port}"
        self.reading = f"amqp://127.0.0.1:{self.read_port}"
        """Where it serves receivers, whatever its role is."""
        self._log = (directory.parent / f"{directory.name}.log").open("ab")
        self.process = start(
            [
                "serve", "--home", url, "--data", str(directory), "--log", "orders",
                "--home-lease-ms", lease_ms, "--http-port", str(self.port), "--flight-port", "0",
                "--amqp-port", str(self.amqp_port), "--amqp-read-port", str(self.read_port),
                "--advertise", f"http={self.url},amqp={self.amqp}", *settings,
            ],
            program=program, stdout=self._log, stderr=self._log,
        )  # fmt: skip

    def comes(self) -> bool:
        """Wait until it serves."""
        eventually(self.is_primary)
        return True

    def append(self, number: int) -> int:
        """Append an event of that number; answers its sequence number."""
        with connect(self.url, retry_s=0, timeout_s=5) as server:
            return server.log("orders").append([Event("E", str(number).encode(), id=f"n-{number}")]).first

    def is_primary(self) -> bool:
        """Whether it serves."""
        try:
            with urllib.request.urlopen(f"{self.url}/health/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def answers(self) -> bool:
        """Whether it runs, serving or standing by."""
        try:
            return self.is_primary() or "is a replica" in self.unready()
        except OSError:
            return False

    def unready(self) -> str:
        """Why it does not serve."""
        try:
            urllib.request.urlopen(f"{self.url}/health/ready", timeout=5).close()
        except urllib.error.HTTPError as refused:
            return refused.read().decode()
        return ""

    def says(self, why: str) -> bool:
        """Whether it runs, and does not serve for that reason."""
        try:
            return why in self.unready()
        except OSError:
            return False

    def contents(self) -> list[bytes]:
        with connect(self.url) as server:
            return [each.data for each in server.log("orders").read()]

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(PATIENCE_S)
        self._log.close()


Join = Callable[..., Member]


def appends_in_one_term(member: Member, for_s: float) -> None:
    """Append for that long: all are taken, in the term that began before."""
    term, until = status(member.home)["term"], time.monotonic() + for_s
    given = []
    while time.monotonic() < until:
        given.append(member.append(len(given)))
    assert given == [*range(1, len(given) + 1)]
    assert status(member.home)["term"] == term


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with postgres() as server:
        yield server


@pytest.fixture
def url(database: Postgres) -> str:
    drop_home(database.url)
    assert "start servers with the same --home" in command("home", "init", "--home", database.url)
    return database.url


@pytest.fixture
def join(url: str, tmp_path: Path) -> Iterator[Join]:
    members: list[Member] = []

    def joined(name: str, *settings: str) -> Member:
        members.append(Member(url, tmp_path / name, *settings))
        return members[-1]

    yield joined
    for member in members:
        member.close()


def status(url: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("home", "status", "--json", "--home", url))
    return found


def reads_ahead(member: Member) -> list[bytes]:
    """What a server serves that says that its copy is ahead; nothing if it does not say so."""
    try:
        with urllib.request.urlopen(f"{member.url}/logs/orders", timeout=5) as answer:
            return [] if answer.headers["Headwater-Ahead"] != "true" else member.contents()
    except OSError:
        return []


def servers(url: str) -> dict[str, dict[str, Any]]:
    """What `home status` says of each server, by its address."""
    return {each["addresses"]["http"]: each for each in status(url)["servers"]}


def test_status_shows_every_server_with_its_role_and_how_far_behind_it_is(
    join: Join, url: str, tmp_path: Path, database: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.homes.postgres.servers.HEARD_S", 3.0)
    first = join("a")
    eventually(first.is_primary)
    proxy = Proxy(database.port)
    second = Member(proxy.before(url), tmp_path / "b")
    try:
        assert first.append(0) == 1
        eventually(lambda: servers(url).get(second.url, {}).get("lag_events") == 0)
        eventually(lambda: servers(url)[first.url]["role"] == "primary")
        eventually(lambda: servers(url)[second.url]["role"] == "following")
        found = servers(url)
        assert (found[first.url]["term"], found[first.url]["lag_events"]) == (1, 0)
        assert (found[second.url]["role"], found[second.url]["term"]) == ("following", 0)
        assert found[second.url]["lag_s"] >= 0
        shown = command("home", "status", "--home", url)
        assert re.search(rf"server .*: primary, term 1, .*http {first.url}, headwater ", shown)
        assert re.search(r"^since \d{4}-\d\d-\d\dT.*Z: it is the first primary of this home$", shown, re.MULTILINE)
        assert re.search(r"^proof: the database has all acknowledged events, and .* has all of term 1$", shown, re.M)
        assert re.search(rf"server .*: following, 0 events behind, as of .*http {second.url}", shown)
        for member in (first, second):
            assert "headwater_role{" in metrics_of(member)
        told = json.loads(read(f"{first.url}/management/homeServer?attributes=role,term,lag"))
        assert sorted(told["results"]) == [["following", None, 0], ["primary", 1, 0]]
        proxy.stop()
        eventually(lambda: servers(url)[second.url]["heard_s"] > 3)
        assert re.search(rf"{second.url}, .*, last report \d+ s ago", command("home", "status", "--home", url))
        proxy.go_on()
        eventually(lambda: servers(url)[second.url]["heard_s"] < 3)
        assert second.end(signal.SIGTERM) == 0
        assert list(servers(url)) == [first.url]
    finally:
        second.close()
        proxy.close()


def metrics_of(member: Member) -> str:
    return read(f"{member.url}/metrics")


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answered:
        text: str = answered.read().decode()
    return text


@pytest.mark.parametrize("how", ["killed", "stopped in order", "paused"])
def test_another_server_goes_on_where_the_primary_ended(join: Join, url: str, how: str) -> None:
    first = join("a")
    eventually(first.is_primary)
    second = join("b")
    assert [first.append(number) for number in range(3)] == [1, 2, 3]
    assert not second.is_primary()
    with connect(second.url) as client:  # it forwards that and names the primary, and the client goes there
        assert client.log("orders").append([Event("E", b"3", id="n-3")]).first == 4
    assert status(url)["addresses"] == {"http": first.url, "amqp": first.amqp}
    match how:
        case "killed":
            first.end(signal.SIGKILL)
        case "paused":
            first.process.send_signal(signal.SIGSTOP)
        case _:
            assert first.end(signal.SIGTERM) == 0
    eventually(second.is_primary)
    assert [second.append(number) for number in range(4, 6)] == [5, 6]
    if how == "paused":  # it learns that its time is over, and stands by
        first.process.send_signal(signal.SIGCONT)
        eventually(lambda: not first.is_primary())
        assert second.end(signal.SIGTERM) == 0
        eventually(first.is_primary)
        assert first.contents() == [str(number).encode() for number in range(6)]
    else:
        assert second.contents() == [str(number).encode() for number in range(6)]


def test_a_primary_that_is_stopped_in_order_logs_no_error(url: str, tmp_path: Path) -> None:
    member = Member(url, tmp_path / "a", "--management-keep")
    try:
        member.comes()
        assert member.end(signal.SIGTERM) == 0
    finally:
        member.close()
    log = (tmp_path / "a.log").read_text()
    _, asked, ending = log.lower().partition('why="asked to stop"')
    assert asked and "stopped" in ending, log
    assert "level=error" not in ending, log


def test_a_primary_that_slept_answers_no_read_with_what_was_there_before(join: Join) -> None:
    first = join("a")
    first.comes()
    assert first.append(0) == 1
    second = join("b")
    eventually(second.answers)
    first.process.send_signal(signal.SIGSTOP)
    with ExitStack() as closing:
        waiting = []
        for _ in range(3):
            waiting.append(closing.enter_context(socket.create_connection(("127.0.0.1", first.port), PATIENCE_S)))
            waiting[-1].sendall(b"GET /logs/orders/head HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        eventually(second.is_primary)
        assert second.append(1) == 2
        first.process.send_signal(signal.SIGCONT)
        for each in waiting:
            answer = b""
            while piece := each.recv(65536):
                answer += piece
            assert answer.split()[1] in (b"503", b"421"), answer


def test_a_primary_that_slept_answers_nothing_old_on_connections_that_stayed_open(join: Join) -> None:
    first = join("a")
    first.comes()
    assert first.append(0) == 1
    second = join("b")
    eventually(second.answers)
    polling = {"component": "LIVE"}
    poll = json.dumps({"f": "futoin.evt.poll:1.1:pollEvents", "p": polling, "rid": "C1"})
    with (
        Client(first.amqp, timeout_s=PATIENCE_S) as client,
        websocket(f"ws://127.0.0.1:{first.port}/futoin/orders") as socket,
    ):
        receiver = client.receiver("orders", credit=0, filter=EARLIEST)
        assert numbers(drained(client, receiver)) == [0]
        socket.send(poll)
        answered = json.loads(socket.recv(PATIENCE_S))
        assert len(answered.get("r", ())) == 1, answered
        first.process.send_signal(signal.SIGSTOP)
        receiver.link.grant(10, drain=True)
        client.flush()
        socket.send(poll)
        eventually(second.is_primary)
        assert second.append(1) == 2
        first.process.send_signal(signal.SIGCONT)
        with suppress(AmqpError, OSError):  # it closes the connection
            client.wait(lambda: receiver.error is not None or receiver.link.credit == 0)
            assert receiver.error is not None, "it said that there is no more"
        with suppress(ConnectionClosed):
            assert "r" not in json.loads(socket.recv(PATIENCE_S)), "it answered what it had"


def is_served(url: str) -> bool:
    try:
        return bool(read(url))
    except OSError:
        return False


@pytest.fixture
def with_flight(join: Join, url: str, tmp_path: Path) -> Iterator[tuple[Member, int]]:
    """A server, and its port of Arrow Flight."""
    [port] = free_ports(1)
    member = Member(url, tmp_path / "a", "--flight-port", str(port), "--flight-start", "at_once")
    yield member, port
    member.close()


def test_no_client_is_refused_while_a_primary_becomes_a_replica(join: Join, with_flight: tuple[Member, int]) -> None:
    first, flight_port = with_flight
    first.comes()
    second = join("b")
    eventually(second.answers)
    refused: list[int] = []
    is_over = threading.Event()

    def connect_to(port: int) -> None:
        while not is_over.wait(0.01):
            try:
                socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
            except ConnectionRefusedError:
                refused.append(port)

    callers = [
        threading.Thread(target=connect_to, args=(port,))
        for port in (first.port, first.amqp_port, first.read_port, flight_port)
    ]
    first.process.send_signal(signal.SIGSTOP)
    eventually(second.is_primary)
    for each in callers:
        each.start()
    first.process.send_signal(signal.SIGCONT)
    try:
        eventually(lambda: is_served(f"{first.url}/logs/orders"))
    finally:
        is_over.set()
        for each in callers:
            each.join(PATIENCE_S)
    assert not refused


def kept_roles(member: Member) -> list[tuple[str, int]]:
    """The roles and terms of the notifications that a server has kept."""
    roles = Query.where(types=[NotificationType.SERVER_ROLE_CHANGED])
    with connect(member.url) as server:
        each = [json.loads(event.data) for event in server.log(SYSTEM_LOG).read(roles)]
        return [(change["role"], change["term"]) for change in each]


def test_notifications_tell_each_change_of_a_role_and_outlive_the_server_that_had_it(url: str, tmp_path: Path) -> None:
    first = Member(url, tmp_path / "a", "--management-keep")
    second = Member(url, tmp_path / "b", "--management-keep") if first.comes() else first
    try:
        eventually(second.answers)
        eventually(lambda: kept_roles(first) == [("primary", 1)], lambda: kept_roles(first))  # a thread appends them
        first.end(signal.SIGKILL)
        eventually(second.is_primary)
        assert 'headwater_role{role="primary"} 1.0' in metrics_of(second)
        eventually(lambda: len(kept_roles(second)) > 1, lambda: kept_roles(second))
        assert kept_roles(second) == [("primary", 1), ("primary", 2)]
    finally:
        for member in (first, second):
            member.close()


def test_servers_go_on_by_themselves_when_the_database_comes_back(
    join: Join, url: str, database: Postgres, tmp_path: Path
) -> None:
    members = [join("a"), join("b")]
    eventually(lambda: any(member.is_primary() for member in members))
    primary = next(member for member in members if member.is_primary())
    replica = next(member for member in members if member is not primary)

    def is_told(metric: str, event: str) -> bool:
        log = (tmp_path / "ab"[members.index(replica)]).with_suffix(".log")
        with suppress(OSError):  # it begins to be the primary
            return metric in metrics_of(replica) and event in log.read_text()
        return False

    assert primary.append(0) == 1
    for member in members:  # a server that finds no database when it starts, ends
        eventually(member.answers)
    database.kill()
    with pytest.raises((EventLogError, ServerUnreachable)):
        primary.append(1)
    eventually(lambda: is_told("headwater_home_away 1.0", "home away"))
    time.sleep(float(LEASE_MS) / 1000)
    database.start()

    def goes_on() -> bool:
        for member in members:
            with suppress(EventLogError, ServerUnreachable):
                if member.is_primary():
                    return member.append(1) == 2
        return False

    eventually(goes_on)
    eventually(lambda: is_told("headwater_home_away 0.0", "home back"))
    assert all(member.process.poll() is None for member in members)


def test_a_primary_that_is_cut_off_ends_by_time_and_can_be_stopped(
    url: str, database: Postgres, tmp_path: Path
) -> None:
    proxy = Proxy(database.port)
    first = Member(proxy.before(url), tmp_path / "a")
    second = Member(url, tmp_path / "b") if first.comes() else first
    try:
        assert first.append(0) == 1
        proxy.stop()

        def append() -> None:
            with suppress(EventLogError, ServerUnreachable):  # whatever it is told
                first.append(1)

        appending = threading.Thread(target=append)
        appending.start()
        eventually(second.is_primary)
        assert not first.is_primary()
        assert second.append(2) == 2
        assert first.end(signal.SIGTERM) == 0
        appending.join(PATIENCE_S)
        assert second.contents() == [b"0", b"2"]
    finally:
        proxy.close()
        for member in (first, second):
            member.close()


def test_a_change_whose_outcome_is_not_known_is_told_so_within_its_patience(
    url: str, database: Postgres, tmp_path: Path
) -> None:
    proxy = Proxy(database.port)
    through = proxy.before(url)
    server = Member(through, tmp_path / "a", lease_ms="60000", program=IMPATIENT)
    try:
        assert server.comes()
        assert put(server, "/logs/orders/consumers/who/it", {})[0] == 201
        proxy.stop()
        status, problem = put(server, "/logs/orders/consumers/who/other", {})
        assert (status, problem["type"]) == (504, "urn:headwater:problem:outcome_unknown")
        assert "the outcome of the change is unknown" in problem["detail"]
        for path in ("/logs/orders/consumers/who/third", "/logs/new"):  # nothing more is sent
            assert put(server, path, {})[0] == 503
        proxy.go_on()
        eventually(lambda: put(server, "/logs/orders/consumers/who/other", {})[0] in (200, 201))
    finally:
        server.close()
        proxy.close()


def put(member: Member, path: str, body: object) -> tuple[int, Any]:
    """The status of a PUT, and its JSON."""
    request = urllib.request.Request(f"{member.url}{path}", json.dumps(body).encode(), method="PUT")
    request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answered:
            return answered.status, json.loads(answered.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


def test_a_server_that_was_killed_and_begins_again_does_not_wait_for_its_own_lease(url: str, tmp_path: Path) -> None:
    first = Member(url, tmp_path / "a", lease_ms="60000")
    eventually(first.is_primary)
    assert first.append(0) == 1
    first.end(signal.SIGKILL)
    assert status(url)["lease_s"] > 30
    again = Member(url, tmp_path / "a", lease_ms="60000")
    try:
        eventually(again.is_primary, within_s=30)
        assert again.append(1) == 2
        assert status(url)["term"] == 2  # a new one, that fences what the dead process may have sent
    finally:
        for member in (first, again):
            member.close()


def test_a_command_does_not_change_a_copy(join: Join, tmp_path: Path) -> None:
    first = join("a")
    eventually(first.is_primary)
    assert first.append(0) == 1
    assert first.end(signal.SIGTERM) == 0
    copy = str(tmp_path / "a")
    assert "is the copy of a home" in command("user", "allow-everybody", "--data", copy, expected=4)
    assert "is the copy of a home" in command(*SERVE, "--data", copy, expected=4)
    again = join("a")
    eventually(again.is_primary)
    assert again.contents() == [b"0"]


def test_a_home_that_was_marked_waits_for_a_person(join: Join, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = join("a")
    eventually(first.is_primary)
    assert first.append(0) == 1
    eventually(lambda: servers(url)[first.url]["lag_s"] is not None)  # else it may be ahead
    first.end(signal.SIGKILL)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE headwater.lease SET went_back = 'a copy has more'")
    assert "no server may append: a copy has more" in command("home", "status", "--home", url)
    second = join("b")
    eventually(lambda: servers(url).get(second.url, {}).get("lag_s") is not None)
    time.sleep(2 * float(LEASE_MS) / 1000)
    assert not second.is_primary()
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert "no terminal for confirmation" in command("home", "accept-loss", "--home", url, expected=2)
    command("home", "accept-loss", "--yes", "--home", url, "--home-lease-ms", LEASE_MS)
    eventually(second.is_primary)
    assert second.append(1) == RESTORE_JUMP + 1  # whether 2 was given before, nobody knows
    assert "nothing to accept" in command("home", "accept-loss", "--home", url)


def test_no_loss_is_accepted_while_a_server_runs_whose_copy_is_ahead(join: Join, url: str, tmp_path: Path) -> None:
    first = join("a")
    eventually(first.is_primary)
    second = join("b")
    for number in range(5):
        first.append(number)
    eventually(lambda: servers(url).get(second.url, {}).get("lag_s") is not None)
    with connect(second.url) as client:
        eventually(lambda: client.log("orders").head() == 5)
    with psycopg.connect(url, autocommit=True) as connection:
        [[orders]] = connection.execute(
            "SELECT key FROM headwater.log WHERE key <> '$state' ORDER BY head DESC LIMIT 1"
        ).fetchall()
        connection.execute(
            "DELETE FROM headwater.frame USING headwater.log WHERE log = id AND key = %s AND last > 3", (orders,)
        )
        [[content]] = connection.execute(
            "SELECT content FROM headwater.frame JOIN headwater.log ON log = id WHERE key = %s AND last = 3", (orders,)
        ).fetchall()
        crc = int.from_bytes(content[4:8], "little")
        connection.execute("UPDATE headwater.log SET head = 3, crc = %s WHERE key = %s", (crc, orders))
    eventually(lambda: servers(url)[second.url]["ahead"] and servers(url)[first.url]["ahead"])
    assert "home went back" in (tmp_path / "a.log").read_text()
    for each in (first, second):  # it goes on to serve what it has, and says so; nothing is restarted
        eventually(lambda each=each: reads_ahead(each) == [b"0", b"1", b"2", b"3", b"4"])
        assert each.process.poll() is None
    assert "ahead of the home: " in command("home", "status", "--home", url)
    assert all(each["ahead"] for each in status(url)["members"])
    refused = command("home", "accept-loss", "--yes", "--home", url, expected=1)
    assert "is ahead of the home (" in refused
    assert "stop it and move its data directory aside" in refused
    assert not status(url)["is_vouched"]
    for each in (first, second):
        assert each.end(signal.SIGTERM) == 0
    third = join("c")
    eventually(lambda: servers(url).get(third.url, {}).get("lag_s") is not None)
    accept = ("home", "accept-loss", "--yes", "--home", url, "--home-lease-ms", LEASE_MS)
    assert "run this there, with --data" in command(*accept, expected=1)
    accept = (*accept, "--data", str(tmp_path / "a"), "--export")
    of_second = f"{socket.gethostname()}:{second.port}"
    assert f"headwater home forget {of_second}" in command(
        *accept, str(tmp_path / "first"), expected=1
    )  # it may have others than the first
    command("home", "forget", of_second, "--home", url)
    accepted = command(*accept, str(tmp_path / "given-up"))
    assert "orders: 2 events, numbered 4 to 5: discarded" in accepted and "is no longer a member" in accepted
    eventually(third.is_primary)
    assert third.append(5) == RESTORE_JUMP + 1
    assert third.contents() == [b"0", b"1", b"2", b"5"]


_SLOW = """
CREATE FUNCTION headwater.wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.7); RETURN NULL; END';
CREATE TRIGGER slow AFTER UPDATE ON headwater.lease FOR EACH STATEMENT EXECUTE FUNCTION headwater.wait();
CREATE TRIGGER slow AFTER UPDATE ON headwater.log FOR EACH STATEMENT EXECUTE FUNCTION headwater.wait();
"""


def test_a_primary_goes_on_whose_home_takes_its_time_for_each_commit(url: str, tmp_path: Path) -> None:
    lease_s = 4
    member = Member(url, tmp_path / "a", lease_ms=f"{lease_s}000")
    try:
        member.comes()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(_SLOW)
        appends_in_one_term(member, 1.5 * lease_s)
    finally:
        member.close()


def test_a_home_is_made_and_checked_by_commands(url: str) -> None:
    made = status(url)
    command("home", "init", "--home", url)
    assert status(url)["home"] == made["home"]
    assert made["primary"] is None
    assert "synchronous_standby_names is empty" in command("home", "check", "--home", url)
    assert "CREATE TABLE headwater.frame" in command("home", "init", "--sql", "--role", "writer")
    assert 'GRANT USAGE ON SCHEMA headwater TO "writer"' in command("home", "init", "--sql", "--role", "writer")
    with psycopg.connect(url, autocommit=True) as connection:
        try:
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("ALTER ROLE headwater SET synchronous_commit = off")
            connection.execute("SELECT pg_reload_conf()")
            eventually(lambda: connection.execute("SHOW fsync").fetchone() == ("off",))
            checked = command("home", "check", "--home", url, expected=1)
            assert "NOT SAFE: fix the problems above" in checked
            assert "note: synchronous_commit is off: servers set it to on for their own sessions" in checked
            refused = command(*SERVE, "--home", url, "--data", "unused", expected=4)
            assert "fsync is off, so a machine crash can lose all data; set it to on" in refused
        finally:
            connection.execute("ALTER SYSTEM RESET fsync")
            connection.execute("ALTER ROLE headwater RESET synchronous_commit")
            connection.execute("SELECT pg_reload_conf()")
            eventually(lambda: connection.execute("SHOW fsync").fetchone() == ("on",))


def test_the_owner_of_a_database_makes_a_home_for_another_role(database: Postgres, tmp_path: Path) -> None:
    place = f"@127.0.0.1:{database.port}/owned"
    with psycopg.connect(database.url, autocommit=True) as connection, ExitStack() as closing:
        for undone, done in (
            ("DROP ROLE owner", "CREATE ROLE owner LOGIN"),
            ("DROP ROLE server", "CREATE ROLE server LOGIN"),
            ("DROP DATABASE owned WITH (FORCE)", "CREATE DATABASE owned OWNER owner"),
        ):
            connection.execute(done)
            closing.callback(connection.execute, undone)
        denied = command("home", "init", "--home", f"postgresql://server{place}", expected=4)
        assert "denied" in denied and "have its administrator run the output of headwater home init --sql" in denied
        command("home", "init", "--home", f"postgresql://owner{place}", "--role", "server")
        assert "OK" in command("home", "check", "--home", f"postgresql://server{place}")
        member = Member(f"postgresql://server{place}", tmp_path / "a")
        closing.callback(member.close)
        member.comes()
        assert member.append(0) == 1


@pytest.mark.parametrize(
    ("arguments", "problem", "code"),
    [
        (("home", "status"), "home: it is not set; name the database with --home", 2),
        (("home", "status", "--home", "postgresql://x@127.0.0.1:1/y"), "PostgreSQL at 127.0.0.1, database y", 4),
        ((*SERVE, "--amqp-read-port", "0"), "amqp.read_port: requires `home`", 2),
        ((*SERVE, "--home", "nonsense"), "the address of the home", 4),
        ((*SERVE, "--home", "postgresql:///x", "--advertise", "smtp=a"), "advertise: expected http=URL", 2),
        ((*SERVE, "--home", "postgresql:///x", "--advertise", "http=http://"), "expected http=URL", 2),
        ((*SERVE, "--home", "postgresql:///x", "--advertise", "http=http://u:p@h"), "advertise: ", 2),
        ((*SERVE, "--home", "postgresql:///x", "--advertise", "http=http://a:x"), "got 'http=http://a:x'", 2),
        ((*SERVE, "--home", "postgresql:///x", "--advertise", "http=http://a\r\nb: c"), "expected http=URL", 2),
    ],
)
def test_what_is_wrong_is_told(arguments: tuple[str, ...], problem: str, code: int) -> None:
    assert problem in command(*arguments, expected=code)


def test_a_password_in_the_address_is_not_shown() -> None:
    for address in ("postgresql://me:hush@db.example/x", "host=db.example user=me password=hush"):
        shown = command("config", "--home", address)
        assert "hush" not in shown
        assert "db.example" in shown
    for action in ("init", "status", "check", "upgrade", "accept-loss"):
        for address in ("postgresql://me:hush%zz@db.example/x", "postgresql://me:hush@[db.example/x"):
            assert "hush" not in command("home", action, "--home", address, expected=4)


def test_a_signal_that_comes_while_a_server_ends_or_cannot_begin_is_heard(url: str, tmp_path: Path) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE headwater.frame RENAME TO away")  # the lease can be had, and nothing else
        first = Member(url, tmp_path / "a")
        try:
            eventually(lambda: "could not start" in (tmp_path / "a.log").read_text())
            assert first.end(signal.SIGTERM) == 0
        finally:
            first.close()
