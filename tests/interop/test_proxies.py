"""An application uses the Python client through a proxy, and its server is killed and starts again at the same port."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path

import pytest

from headwater.client import connect
from headwater.core import Event
from headwater.core.errors import OutcomeUnknown
from headwater.server.config.settings import Http

from ..client.application import LOG, PATIENCE_S, Application
from ..night import IS_NIGHT, night
from ..ports import free_ports
from ..server.running import RunningServer
from ..waiting import eventually
from .install import unavailable
from .runtimes import Caddy, HaProxy, Nginx

KILLS = 25 if IS_NIGHT else 1
EVENTS, EVENT_BYTES = 2000, 2000
"""What is there at first: pages of several times what two sockets hold, and less than HTTP/1.0 may be answered."""
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
            whole = client.log(LOG).read()
            application.check(list(whole), whole.head)
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
            pytest.raises(OutcomeUnknown, match=r"413.*nginx"),
        ):
            client.log(LOG).append([large, large])
        for name in ("nginx", "caddy", "haproxy"):
            with proxy(name, tmp_path, port) as url, connect(url) as client:
                assert client.log(LOG).append([large, large]).was_stored is False
    assert int(mebibytes) * 1024**2 == Http().body_bytes_max, "the guide says that they are the same"
    assert textwrap.indent(GUIDE, "    ") in (DEPLOYED / "nginx.conf").read_text("utf-8")
