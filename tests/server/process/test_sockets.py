"""Sockets, loopback, and what is said when they cannot be had."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from headwater.formats.settings.declaration import InvalidConfiguration
from headwater.server.process.sockets import CannotListen, Tls, certificates, close_all, is_loopback, listen, url
from tests.amqp.certificates import Authority


def test_port_zero_takes_a_free_one() -> None:
    sockets = listen("127.0.0.1", 0, "--http-port")
    port = sockets[0].getsockname()[1]
    assert url("http", sockets[0]) == f"http://127.0.0.1:{port}" and port > 0
    close_all(sockets)


def test_a_port_that_is_taken_is_named_with_the_flag_that_changes_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(CannotListen, match=r"127.0.0.1 port \d+: Address already in use; choose .*--http-port"):
            listen("127.0.0.1", taken.getsockname()[1], "--http-port")


def test_a_host_that_is_not_here_is_refused() -> None:
    with pytest.raises(CannotListen, match=r"192\.0\.2\.1"):
        listen("192.0.2.1", 0, "--http-port")
    with pytest.raises(CannotListen, match="not an address of this machine"):
        listen("no such host", 0, "--http-port")


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("0.0.0.0", False)]
)
def test_loopback_is_recognised(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_tls_files_are_checked_before_anything_is_served(tmp_path: Path) -> None:
    assert certificates(Tls()) is None
    with pytest.raises(InvalidConfiguration, match=r"tls.certificate: .*cert.pem does not exist"):
        certificates(Tls(tmp_path / "cert.pem", tmp_path / "key.pem"))
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("no PEM", encoding="ascii")
    with pytest.raises(InvalidConfiguration, match="are not a certificate and its key in PEM"):
        certificates(Tls(tmp_path / "cert.pem", tmp_path / "key.pem"))


def test_other_hosts_and_authorities_are_checked_too(tmp_path: Path) -> None:
    own = Authority(tmp_path, "server").own

    def problem(*hosts: str, client_ca: Path | None = None) -> str:
        with pytest.raises(InvalidConfiguration) as refused:
            certificates(Tls(own.file, own.key, hosts, client_ca))
        return str(refused.value)

    assert problem("localhost") == "tls.hosts: expected NAME=CERTIFICATE:KEY, got 'localhost'"
    assert (
        problem(f"localhost={own.file}:{tmp_path}/no.key")
        == f"tls.hosts: {tmp_path}/no.key does not exist or is not readable"
    )
    assert problem(client_ca=tmp_path / "no.pem").startswith(f"tls.client_ca: {tmp_path}/no.pem does not exist")
    (tmp_path / "text.pem").write_text("no PEM", encoding="ascii")
    assert problem(client_ca=tmp_path / "text.pem").startswith(
        f"tls.client_ca: {tmp_path}/text.pem contains no PEM certificates"
    )
    assert certificates(Tls(own.file, own.key, (f"localhost={own.file}:{own.key}",), own.file)) is not None
