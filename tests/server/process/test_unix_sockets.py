"""A server that listens on a socket in the file system as well."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from headwater.client import ServerUnreachable, connect
from headwater.core import Event
from headwater.server.process.sockets import CannotListen, UnixSocket
from headwater.server.users.accounts import hash_token
from tests.amqp.certificates import Authority

from ..running import RunningServer, headwater

FLAG = "--http-unix"


def listening(path: Path) -> UnixSocket:
    return UnixSocket(path, FLAG)


def asked(path: Path, request: bytes) -> bytes:
    """The first piece of the answer to a request on the socket."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))
        peer.sendall(request)
        return peer.recv(65536)


def test_the_file_is_for_its_owner_alone_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    rights = os.umask(0)
    try:
        made = listening(path)
    finally:
        os.umask(rights)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert made.url == f"http+unix://{path}"
    made.close()
    made.close()
    assert not path.exists()


def test_what_a_dead_server_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    made = listening(path)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))
    made.close()


def test_a_living_server_keeps_its_file(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    living = listening(path)
    with pytest.raises(CannotListen, match=rf"{path}: another server listens on it; choose another path with {FLAG}"):
        listening(path)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))
    living.close()


def test_a_file_that_somebody_replaced_is_not_taken_away_by_the_end_of_another(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    first = listening(path)
    first.remove_file()
    second = listening(path)
    first.close()
    assert path.exists()
    second.close()


def test_what_is_no_socket_stays(tmp_path: Path) -> None:
    (path := tmp_path / "notes.txt").write_text("mine", encoding="ascii")
    (link := tmp_path / "link").symlink_to(path)
    for given in (path, link, tmp_path):
        with pytest.raises(CannotListen, match="it exists and is not a socket"):
            listening(given)
    assert path.read_text(encoding="ascii") == "mine"


@pytest.mark.parametrize(("name", "problem"), [("x" * 200, "path too long"), ("no/such/a.sock", "No such file")])
def test_a_path_that_cannot_be_is_told_with_the_flag(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(CannotListen, match=rf"{problem}.*{FLAG}"):
        listening(tmp_path / name)


def test_clients_of_this_machine_use_it(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    with RunningServer("--storage", "memory", FLAG, str(path), cwd=tmp_path) as running:
        assert running.further_url("http+unix") == f"http+unix://{path}"
        for url in (f"http+unix://{path}", f"http+unix://{str(path).replace('/', '%2F')}", running.url):
            with connect(url) as server:
                server.create("orders").append([Event("A")])
        shown = headwater("logs", "list", "--url", f"http+unix://{path}", cwd=tmp_path)
        assert "orders" in shown.stdout, shown.stderr
        with connect(f"http+unix://{path}") as server, server.log("orders").subscribe() as subscription:
            assert len(subscription.poll(5)) == 3
            assert not subscription.poll(0.05)  # it follows
            clients = server.management.query("client", "name", "peer", "tls").entities
            assert {each["name"].partition(":")[0] for each in clients} == {"http/local"}
            assert len({each["name"] for each in clients}) == len(clients) == 2
        assert running.terminate() == 0
    assert not path.exists()
    with connect(f"http+unix://{path}", retry_s=0) as server, pytest.raises(ServerUnreachable, match="No such file"):
        server.logs()


def test_after_a_kill_the_next_server_takes_the_path(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    running = RunningServer("--storage", "memory", FLAG, str(path), cwd=tmp_path)
    running.further_url("http+unix")
    running.process.kill()
    running.process.wait()
    assert path.exists()  # nobody could
    running.__exit__()
    with RunningServer("--storage", "memory", FLAG, str(path), cwd=tmp_path) as again:
        again.further_url("http+unix")
        assert asked(path, b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n").startswith(b"HTTP/1.1 200")
        assert again.terminate() == 0
    assert not path.exists()


def test_what_holds_for_connections_and_names_holds_there(tmp_path: Path) -> None:
    """No TLS, the names of the web guard, and the limit of connections."""
    own = Authority(tmp_path, "server").own
    tls = ["--tls-certificate", str(own.file), "--tls-key", str(own.key)]
    path = tmp_path / "http.sock"
    given = ["--storage", "memory", FLAG, str(path), "--http-connections-max", "1", *tls]
    with RunningServer(*given, cwd=tmp_path) as running:
        running.further_url("http+unix")
        strange = asked(path, b"GET /logs HTTP/1.1\r\nhost: evil.example\r\n\r\n")
        assert strange.startswith(b"HTTP/1.1 421")
        page = asked(path, b"GET /logs HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\n\r\n")
        assert page.startswith(b"HTTP/1.1 403")
        with socket.socket(socket.AF_UNIX) as one:
            one.connect(str(path))
            one.sendall(b"GET /logs HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert one.recv(65536).startswith(b"HTTP/1.1 200")
            surplus = asked(path, b"GET /logs HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert surplus.startswith(b"HTTP/1.1 503") and b"the maximum" in surplus


def test_logins_are_asked_for_there_too(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    users = tmp_path / "headwater.toml"
    users.write_text(f'[users.ann]\ntokens = ["{hash_token("t")}"]\ngrants = ["all:*"]\n', encoding="utf-8")
    with RunningServer("--config", str(users), "--storage", "memory", FLAG, str(path), cwd=tmp_path) as running:
        running.further_url("http+unix")
        assert asked(path, b"GET /logs HTTP/1.1\r\nhost: localhost\r\n\r\n").startswith(b"HTTP/1.1 401")
        with connect(f"http+unix://{path}", token="t") as server:
            assert server.logs() == ["default"]


def test_curl_speaks_to_it(tmp_path: Path) -> None:
    curl = shutil.which("curl")
    assert curl is not None, "curl is needed"
    path = tmp_path / "http.sock"
    with RunningServer("--storage", "memory", FLAG, str(path), cwd=tmp_path) as running:
        running.further_url("http+unix")
        command = [curl, "-sS", "--unix-socket", str(path), "http://localhost/logs"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert said.stdout == '{"logs":["default"]}'
