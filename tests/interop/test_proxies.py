"""An application uses the Python client through a proxy, and its server is killed and starts again at the same port."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import sqlite3
import subprocess
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path

import pytest

from headwater.client import ServerUnreachable, UnexpectedAnswer, connect
from headwater.core import Event
from headwater.core.errors import Closed, OutcomeUnknown
from headwater.decisions import ReadModel, Runner, event
from headwater.server.config.settings import Http

from ..night import IS_NIGHT, night
from ..server.running import RunningServer
from ..soak.server import free_ports
from ..waiting import eventually
from .install import unavailable
from .runtimes import Caddy, HaProxy, Nginx

KILLS = 25 if IS_NIGHT else 1
PATIENCE_S = 60.0
LOG, LAST = "orders", "Last"
EVENTS, EVENT_BYTES = 2000, 2000
"""What is there at first: pages of several times what two sockets hold, and less than HTTP/1.0 may be answered."""
WRITTEN = 3
"""Events of each append."""
ROOT = Path(__file__).parents[2]
DEPLOYED = ROOT / "deploy" / "proxies"
OPERATIONS = ROOT / "docs" / "guides" / "operations.md"
GUIDE = re.findall(r"^location / \{\n(?:.*\n)*?\}\n", OPERATIONS.read_text(encoding="utf-8"), re.MULTILINE)[0]
"""What the guide says: HTTP/1.1, and nothing is held back."""
DEBIAN = """location / {
    proxy_pass http://127.0.0.1:8080;
    proxy_set_header Host $host;
    proxy_set_header X-Real-IP $remote_addr;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme;
}
"""
"""With Debian's `proxy_params`, and otherwise as nginx is: it asks with HTTP/1.0, and buffers answers."""
CONFIGURATION = """
daemon off;
master_process off;  # no worker of another user, who could not write into a directory of tests
pid {directory}/pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    {server}
}}
"""


def _of_nginx(directory: Path, port: int) -> str:
    server = (DEPLOYED / "nginx.conf").read_text("utf-8").replace("listen 80;", f"listen 127.0.0.1:{port};")
    return CONFIGURATION.format(directory=directory, server=server)


def _of_debian(directory: Path, port: int) -> str:
    return CONFIGURATION.format(directory=directory, server=f"server {{ listen 127.0.0.1:{port};\n{DEBIAN} }}")


def _of_caddy(directory: Path, port: int) -> str:
    site = (DEPLOYED / "Caddyfile").read_text("utf-8").replace("log.example.org {", f"http://127.0.0.1:{port} {{")
    return f"{{\n\tadmin off\n}}\n{site}"


def _of_haproxy(directory: Path, port: int) -> str:
    return (DEPLOYED / "haproxy.cfg").read_text("utf-8").replace("bind :80", f"bind 127.0.0.1:{port}")


Configured = Callable[[Path, int], str]
"""The configuration of a proxy that listens on that port, and asks port 8080."""
PROXIES: dict[str, tuple[type[HaProxy], Configured]] = {
    "debian": (Nginx, _of_debian),
    "nginx": (Nginx, _of_nginx),
    "caddy": (Caddy, _of_caddy),
    "haproxy": (HaProxy, _of_haproxy),
}


@contextmanager
def proxy(name: str, directory: Path, upstream_port: int) -> Iterator[str]:
    """The URL of that proxy, whose errors go to `proxy.txt`."""
    kind, configured = PROXIES[name]
    runtime = kind()
    if (reason := runtime.missing()) is not None:
        unavailable(reason)
    [port] = free_ports(1)
    configuration = directory / "proxy.conf"
    text = configured(directory, port).replace("127.0.0.1:8080", f"127.0.0.1:{upstream_port}")
    configuration.write_text(text, "utf-8")
    told = directory / "proxy.txt"
    homes = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(directory))
    with told.open("wb") as file:
        command = [*runtime.command(), configuration]
        process = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **homes})
    try:
        eventually(partial(_listens, port), told.read_text)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@event
class Written:
    """What the writers append."""


class Application:
    """Two writers, one of which is patient, a reader, a subscriber, a worker and a read model, each a thread and a
    client."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ending, self._has_written = threading.Event(), threading.Event()
        self._threads = ThreadPoolExecutor(6)
        self.acknowledged: dict[str, int] = {}
        """The number of each event, by its id."""
        self.counts = dict.fromkeys(("patient", "impatient", "read", "cut", "unknown"), 0)
        """Appends and reads that were answered, reads that were given up, appends whose outcome was not known."""
        self.followed: list[int] = []
        self.worked: list[int] = []
        self.modelled: list[int] = []
        self._clients: list[Future[None]] = [
            self._threads.submit(work)
            for work in (
                partial(self._write, "patient", PATIENCE_S), partial(self._write, "impatient", 0), self._read,
                self._model, self._follow, self._work,
            )
        ]  # fmt: skip

    def goes_on(self) -> None:
        """Wait until each of them has done something more."""
        before = self._progress()
        self.wait_for(lambda: all(now > then for now, then in zip(self._progress(), before, strict=True)))

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        """Wait until it is so. Raises what one of them raised."""
        eventually(lambda: is_so() or self._failed(), lambda: (self.counts, len(self.followed), len(self.worked)))
        if failed := self._failed():
            failed[0].result()

    def end(self) -> None:
        """End it: those who follow do so with an event of the type LAST. Raises what one of them raised."""
        self._ending.set()
        for client in self._clients[:3]:
            client.result(PATIENCE_S)
        self._has_written.set()  # the read model has all of it to see
        self._clients.pop(3).result(PATIENCE_S)
        with connect(self._url, retry_s=PATIENCE_S) as client:
            client.log(LOG).append([Event(LAST)])
        for client in self._clients[3:]:
            client.result(PATIENCE_S)

    def give_up(self) -> None:
        """Let all of them end, whatever they have done: in vain they try for PATIENCE_S at most."""
        self._ending.set()
        self._has_written.set()

    def _progress(self) -> tuple[int, ...]:
        done = (self.counts[name] for name in ("patient", "impatient", "read"))
        return (*done, len(self.followed), len(self.worked), len(self.modelled))

    def _failed(self) -> list[Future[None]]:
        return [client for client in self._clients if client.done()]

    def _write(self, name: str, retry_s: float) -> None:
        with connect(self._url, retry_s=retry_s) as client:
            log = client.log(LOG)
            for round in itertools.count():
                ids = [f"{name}-{round}-{index}" for index in range(WRITTEN)]
                events = [Event("Written", b"{}", id=id) for id in ids]
                while True:
                    try:
                        first = log.append(events).first
                        break
                    except OutcomeUnknown:
                        self.counts["unknown"] += 1
                    except (Closed, ServerUnreachable):
                        pass
                    assert name == "impatient", "who is patient is answered in the end"
                    self._ending.wait(0.01)
                self.acknowledged |= zip(ids, range(first, first + WRITTEN), strict=True)
                self.counts[name] += 1
                if self._ending.wait(0.01):
                    return

    def _read(self) -> None:
        with connect(self._url, retry_s=0) as client:
            log = client.log(LOG)
            while not self._ending.is_set():
                try:
                    reading = log.read()
                    numbers = [each.sequence_number for each in reading]
                except (Closed, ServerUnreachable):
                    self.counts["cut"] += 1
                    self._ending.wait(0.01)
                    continue
                assert numbers == list(range(1, reading.head + 1)), "a read was short, and nothing said so"
                self.counts["read"] += 1

    def _model(self) -> None:
        model = ReadModel("written", {"one": "number INTEGER"}).on_stored(
            Written,
            lambda transaction, _, stored: transaction.execute("INSERT INTO {one} VALUES (?)", (stored[0],)),
        )
        with closing(sqlite3.connect(":memory:", isolation_level="DEFERRED")) as connection:
            with connect(self._url, retry_s=PATIENCE_S) as client:
                runner = Runner(client.log(LOG), connection, model)
                while not self._has_written.wait(0.01):
                    runner.catch_up()
                    self.modelled = [row[0] for row in connection.execute("SELECT number FROM one_1 ORDER BY number")]
                runner.catch_up()
            self.modelled = [row[0] for row in connection.execute("SELECT number FROM one_1 ORDER BY number")]

    def _follow(self) -> None:
        with connect(self._url, retry_s=PATIENCE_S) as client, client.log(LOG).subscribe() as subscription:
            for each in subscription:
                self.followed.append(each.sequence_number)
                if each.event.type == LAST:
                    return

    def _work(self) -> None:
        with (
            connect(self._url, retry_s=PATIENCE_S) as client,
            client.log(LOG).work("billing", start="earliest", batch_events=1000) as work,
        ):
            for batch in work:
                self.worked += [each.sequence_number for each in batch]
                if batch.events[-1].event.type == LAST:
                    return


ENDS = {
    "application/x-ndjson;end=line": re.compile(rb'^\{"end":\d+\}\n\Z', re.MULTILINE),
    "application/json": re.compile(rb"\]\Z"),
}


class _Raw:
    """A read by a client that is not ours: its form says whether it is whole."""

    def __init__(self, url: str, accept: str) -> None:
        self._end = ENDS[accept]
        self._connection = HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE_S)
        fields = {"accept": accept, "content-type": "application/json"}
        self._connection.request("POST", f"/logs/{LOG}/read", json.dumps({"query": "all", "limit": EVENTS}), fields)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200
        self._begun = self._answer.read(1)

    def rest(self) -> int | None:
        """How many events came; None if the answer broke off, and its form or HTTP says so."""
        try:
            body = self._begun + self._answer.read()
        except (IncompleteRead, ConnectionError):
            return None
        return body.count(b'"sequence_number"') if self._end.search(body) else None

    def close(self) -> None:
        """Done with it, read or not."""
        self._answer.close()
        self._connection.close()


@pytest.mark.timeout(900 if IS_NIGHT else 180)
@pytest.mark.parametrize(
    "name", ["debian", "caddy", pytest.param("nginx", marks=night), pytest.param("haproxy", marks=night)]
)
def test_nothing_is_lost_and_no_read_is_short_behind_a_proxy_while_the_server_is_killed(
    tmp_path: Path, name: str
) -> None:
    [port] = free_ports(1)
    with ExitStack() as ending:
        url = ending.enter_context(proxy(name, tmp_path, port))

        def start() -> RunningServer:
            return ending.enter_context(RunningServer("--data", "data", "--http-port", str(port), cwd=tmp_path))

        server = start()
        patient = ending.enter_context(connect(url, retry_s=PATIENCE_S))
        log = patient.create(LOG)
        for _ in range(0, EVENTS, 500):
            log.append([Event("There", b"x" * EVENT_BYTES) for _ in range(500)])
        application = Application(url)
        ending.callback(application.give_up)
        for _ in range(KILLS):
            application.goes_on()
            reading = ending.enter_context(closing(log.read()))
            next(reading)
            raws = [ending.enter_context(closing(_Raw(url, accept))) for accept in ENDS]
            unknown = application.counts["unknown"]
            server.process.kill()
            server.process.wait()
            application.wait_for(lambda unknown=unknown: application.counts["unknown"] > unknown)
            assert {raw.rest() for raw in raws} <= {None, EVENTS}
            server = start()
            assert 1 + sum(1 for _ in reading) == reading.head
        application.goes_on()
        application.end()
        with connect(server.url) as client:
            events = list(client.log(LOG).read())
            numbers = {each.event.id: each.sequence_number for each in events}
            head = client.log(LOG).head()
        assert len(numbers) == head, "each event is there once"
        assert {id: numbers.get(id) for id in application.acknowledged} == application.acknowledged
        assert application.followed == list(range(1, head + 1))
        assert set(application.worked) == set(application.followed)
        written = [each.sequence_number for each in events if each.event.type == "Written"]
        assert application.modelled == written
        assert server.terminate() == 0


def test_an_append_above_what_nginx_takes_by_default_comes_through_as_it_is_deployed(tmp_path: Path) -> None:
    [mebibytes] = re.findall(r"client_max_body_size (\d+)m;", GUIDE) or ["1"]
    large = Event("A", bytes(700 * 1024))
    with RunningServer("--storage", "memory", cwd=tmp_path) as server:
        with connect(server.url) as client:
            client.create(LOG)
        port = int(server.url.rpartition(":")[2])
        with (
            proxy("debian", tmp_path, port) as url,
            connect(url) as client,
            pytest.raises(UnexpectedAnswer, match=r"413.*nginx"),
        ):
            client.log(LOG).append([large, large])
        for name in ("nginx", "caddy", "haproxy"):
            with proxy(name, tmp_path, port) as url, connect(url) as client:
                assert client.log(LOG).append([large, large]).was_stored is False
    assert int(mebibytes) * 1024**2 == Http().body_bytes_max, "the guide says that they are the same"
    assert textwrap.indent(GUIDE, "    ") in (DEPLOYED / "nginx.conf").read_text("utf-8")
