"""SIGHUP: certificates are loaded again, a terminal that is gone is a stop, and `nohup` stays what it is."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.amqp.certificates import Authority, Certificate

from ..running import SILENCE_S_MAX, RunningServer
from ..starting import PROGRAM

HEARS = "import os, signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); os.setsid()"
"""Without a controlling terminal, and with SIGHUP not ignored, whatever the tests have: they may run under `nohup`."""
DAEMON = [sys.executable, "-c", f"{HEARS}; from headwater.cli.main import main; main()"]
ASKS = b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
IN_MEMORY = ("--storage", "memory")


def connected(url: str, context: ssl.SSLContext, name: str | None = None) -> ssl.SSLSocket:
    address = urlsplit(url)
    plain = socket.create_connection((address.hostname or "", address.port or 0), timeout=SILENCE_S_MAX)
    return context.wrap_socket(plain, server_hostname=name or address.hostname)


def answered(url: str, context: ssl.SSLContext) -> bool:
    """Whether a client gets an answer, and not an end of the connection."""
    with suppress(ssl.SSLError, ConnectionError), connected(url, context) as connection:
        connection.sendall(ASKS)
        return connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    return False


def shown(url: str, context: ssl.SSLContext, name: str | None = None) -> str:
    """The common name of the certificate that a server shows there to a client that asks for that name."""
    with connected(url, context, name) as connection:
        certificate = connection.getpeercert()
    assert certificate is not None
    subject = dict(pair for names in certificate["subject"] for pair in names)
    return str(subject["commonName"])


def put(certificate: Certificate, folder: Path, stem: str) -> None:
    shutil.copy(certificate.file, folder / f"{stem}.pem")
    shutil.copy(certificate.key, folder / f"{stem}.key")


def test_a_hang_up_loads_the_certificates_of_http_and_amqp_again(tmp_path: Path) -> None:
    (tmp_path / "authority").mkdir()
    authority = Authority(tmp_path / "authority", "authority")
    for stem, alternatives in (("own", "IP:127.0.0.1"), ("other", "DNS:localhost")):
        for age in ("old", "new"):
            put(authority.issue(f"{age} {stem}", alternatives), tmp_path, f"{age}-{stem}")
        put(Certificate(tmp_path / f"old-{stem}.pem", tmp_path / f"old-{stem}.key"), tmp_path, stem)
    tls = ("--tls-certificate", "own.pem", "--tls-key", "own.key", "--tls-hosts", "localhost=other.pem:other.key")
    tls += ("--tls-client-ca", str(authority.own.file))
    context = authority.context(authority.issue("client"))
    strange = authority.context(Authority(tmp_path, "another authority").issue("another client"))
    with RunningServer(*IN_MEMORY, *tls, cwd=tmp_path, context=context, program=DAEMON) as server:
        urls = (server.url, server.further_url("amqps"))

        def all_shown() -> set[str]:
            return {shown(url, context, name) for url in urls for name in (None, "localhost")}

        assert all_shown() == {"old own", "old other"}
        with connected(server.url, context) as open_before:
            for stem in ("own", "other"):
                put(Certificate(tmp_path / f"new-{stem}.pem", tmp_path / f"new-{stem}.key"), tmp_path, stem)
            server.process.send_signal(signal.SIGHUP)
            server.wait_for("certificates reloaded")
            assert "certificate=own.pem key=own.key" in server.errors
            assert all_shown() == {"new own", "new other"}
            assert answered(server.url, context)
            open_before.sendall(ASKS)
            assert open_before.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert not answered(server.url, strange), "certificates of clients are not verified any more"
        shutil.copy(tmp_path / "old-own.key", tmp_path / "own.key")  # which is not the certificate's
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("own.pem and own.key are not a certificate and its key")
        [line] = [line for line in server.errors.splitlines() if "cannot reload" in line]
        assert "level=error" in line
        assert all_shown() == {"new own", "new other"}
        assert server.terminate() == 0


def test_a_hang_up_without_tls_loads_nothing_and_ends_nothing(tmp_path: Path) -> None:
    with RunningServer(*IN_MEMORY, cwd=tmp_path, program=DAEMON) as server:
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("nothing to reload")
        assert server.ask("/health/ready")[0] == 200


def test_a_terminal_that_is_gone_stops_the_server_in_order(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    attach = f"{HEARS}; os.open({os.ttyname(theirs)!r}, os.O_RDWR)"
    program = [sys.executable, "-c", f"{attach}; from headwater.cli.main import main; main()"]
    with RunningServer("--data", "data", cwd=tmp_path, program=program) as server:
        os.close(theirs)
        assert server.ask("/health/ready")[0] == 200
        os.close(ours)
        assert server.process.wait(SILENCE_S_MAX) == 0
        assert "message=stopped" in server.errors


@pytest.mark.skipif(shutil.which("nohup") is None, reason="the program nohup is not here")
def test_a_hang_up_that_was_ignored_at_the_start_stays_ignored(tmp_path: Path) -> None:
    with RunningServer(*IN_MEMORY, cwd=tmp_path, program=["nohup", *PROGRAM]) as server:
        server.process.send_signal(signal.SIGHUP)
        assert server.ask("/health/ready")[0] == 200
        assert server.terminate() == 0
        assert "SIGHUP" not in server.errors


def test_a_hang_up_while_the_server_starts_ends_nothing(tmp_path: Path) -> None:
    early = "run, cli.run = cli.run, lambda given: (os.kill(os.getpid(), signal.SIGHUP), run(given))[1]"
    program = [sys.executable, "-c", f"{HEARS}; from headwater.cli import main as cli; {early}; cli.main()"]
    with RunningServer(*IN_MEMORY, cwd=tmp_path, program=program) as server:
        assert server.ask("/health/ready")[0] == 200
        assert server.terminate() == 0
