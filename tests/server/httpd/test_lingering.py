"""An answer that is given before the request has come whole can be read before the connection ends."""

from __future__ import annotations

import http.client
import shutil
import socket
import subprocess
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from ...amqp.certificates import Authority
from ..running import SILENCE_S_MAX, RunningServer

JSON = {"content-type": "application/json"}
BYTES = 200_000_000
"""Of a body that is too large: more than all buffers between the two hold."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer("--storage", "memory", cwd=tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("body") / "large"
    with file.open("wb") as opened:
        opened.truncate(BYTES)
    return file


def test_http_client_reads_a_413_after_it_sent_all(server: RunningServer, large: Path) -> None:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=SILENCE_S_MAX)
    with large.open("rb") as body:
        connection.request("POST", "/logs/default/append", body, {**JSON, "content-length": str(BYTES)})
    answer = connection.getresponse()
    assert (answer.status, b"too_large" in answer.read()) == (413, True)
    connection.close()


def test_requests_reads_a_413(server: RunningServer, large: Path) -> None:
    with large.open("rb") as body:
        answer = requests.post(f"{server.url}/logs/default/append", data=body, headers=JSON, timeout=SILENCE_S_MAX)
    assert (answer.status_code, "too_large" in answer.text) == (413, True)


@pytest.mark.parametrize("expect", ["Expect:", "Expect: 100-continue"])
def test_curl_reads_a_413(server: RunningServer, large: Path, expect: str) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not there")
    command = [curl, "-sS", "-H", expect, "-H", "content-type: application/json", "--data-binary", f"@{large}"]
    command += ["-w", "%{http_code}", f"{server.url}/logs/default/append"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=SILENCE_S_MAX, check=False)
    assert (ended.returncode, ended.stderr, ended.stdout[-3:]) == (0, "", "413")
    assert "too_large" in ended.stdout


def test_what_is_no_http_is_refused_readably(server: RunningServer) -> None:
    url = urllib.parse.urlsplit(server.url)
    with socket.create_connection((str(url.hostname), url.port or 0), SILENCE_S_MAX) as peer:
        peer.sendall(b"no HTTP\r\n\r\n")
        assert peer.recv(12) == b"HTTP/1.1 400"
        for _ in range(100):
            peer.sendall(b"more" * 10_000)
        assert b"Invalid HTTP request" in b"".join(iter(lambda: peer.recv(1000), b""))


def test_over_tls_a_413_is_read_after_all_was_sent(tmp_path: Path, large: Path) -> None:
    authority = Authority(tmp_path, "authority")
    own = authority.issue("server", "IP:127.0.0.1")
    tls = ("--tls-certificate", str(own.file), "--tls-key", str(own.key))
    with RunningServer("--storage", "memory", *tls, cwd=tmp_path) as server:
        host = server.url.removeprefix("https://")
        connection = http.client.HTTPSConnection(host, timeout=SILENCE_S_MAX, context=authority.context())
        with large.open("rb") as body:
            connection.request("POST", "/logs/default/append", body, {**JSON, "content-length": str(BYTES)})
        answer = connection.getresponse()
        assert (answer.status, b"too_large" in answer.read()) == (413, True)
        connection.close()
