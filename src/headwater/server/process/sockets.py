"""Listening sockets, loopback detection, and TLS."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import ssl
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ...core.errors import EventLogError
from ...formats.settings.declaration import InvalidConfiguration, path, setting, texts

BACKLOG = 2048
"""Connections that wait to be accepted."""
SILENT_S, PROBE_S, PROBES = 5, 2, 3
"""When a silent peer is probed, how often, and how many lost probes end the connection."""


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS of every listening port; set both or none."""

    certificate: Path | None = setting(None, path, "file with the certificate chain (PEM); with the key, enables TLS")
    """File with the certificate chain (PEM). Together with `tls.key`, this enables TLS (1.2 and newer). SIGHUP
    [reloads](../guides/operations.md#tls) the files of this section.
    """
    key: Path | None = setting(None, path, "file with the private key (PEM)")
    hosts: tuple[str, ...] = setting((), texts, "additional certificates by host name (SNI): NAME=CERTIFICATE:KEY")
    client_ca: Path | None = setting(
        None, path, "file with the CA certificates (PEM) for client certificates, whose common name is the user"
    )
    """File with the authorities (PEM) that sign client certificates, which are optional unless a setting requires
    them. The common name is the user over AMQP (SASL EXTERNAL), HTTP and FutoIn.
    """


class CannotListen(EventLogError):
    """Listening on an address failed; the message contains the reason and the remedy."""


def addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    """The addresses of a host name. Raises CannotListen."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else str(error)
        raise CannotListen(f"host {host!r} is not an address of this machine: {problem}") from None
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host. Raises CannotListen."""
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for _, address in addresses(host))


def listen(host: str, port: int, flag: str) -> list[socket.socket]:
    """Bound sockets, one for each address of the host, all on one port; `flag` sets that port.

    They accept nothing before their server starts. Raises CannotListen.
    """
    sockets: list[socket.socket] = []
    try:
        for family, address in addresses(host):
            sockets.append(_bound(family, address, sockets[0].getsockname()[1] if sockets else port, flag))
    except CannotListen:
        close_all(sockets)
        raise
    return sockets


def close_all(sockets: Iterable[socket.socket]) -> None:
    """Close them."""
    for bound in sockets:
        bound.close()


def url(scheme: str, bound: socket.socket) -> str:
    """The address of a bound socket: `http://127.0.0.1:8080`."""
    host, port = bound.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class Certificates:
    """The server's TLS, at least 1.2, with certificates that can be reloaded while it serves.

    With several hosts, a client gets the certificate of the requested name (RFC 6066, 3), or the first one if that is
    unknown or missing. With `client_ca`, a client may present a certificate, and an invalid one is refused.
    """

    def __init__(self, settings: Tls) -> None:
        """Loads them: a certificate and a key must be set. Raises InvalidConfiguration."""
        self.settings = settings
        self._first, self._others = self._read()
        self.context = self._first
        """The context of every port; each handshake uses the certificates loaded last."""
        self.context.sni_callback = self._choose

    def load(self) -> None:
        """Reload all, for connections from now on. Raises InvalidConfiguration, and then changes nothing."""
        self._first, self._others = self._read()

    def _read(self) -> tuple[ssl.SSLContext, dict[str, ssl.SSLContext]]:
        tls = self.settings
        assert tls.certificate is not None and tls.key is not None
        first = _tls_context(tls.certificate, tls.key, tls.client_ca, "tls.certificate", "tls.key")
        return first, dict(_host_context(text, tls.client_ca) for text in tls.hosts)

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
        chosen = self._first if name is None else self._others.get(name.lower(), self._first)
        if chosen is not self.context:
            connection.context = chosen


def certificates(tls: Tls) -> Certificates | None:
    """The server's TLS, or None if no certificate is set. Raises InvalidConfiguration."""
    return None if tls.certificate is None or tls.key is None else Certificates(tls)


def _host_context(text: str, client_ca: Path | None) -> tuple[str, ssl.SSLContext]:
    name, equals, paths = text.partition("=")
    certificate, colon, key = paths.partition(":")
    if not (name and equals and certificate and colon and key):
        raise InvalidConfiguration(f"expected NAME=CERTIFICATE:KEY, got {text!r}", "tls.hosts")
    return name.lower(), _tls_context(Path(certificate), Path(key), client_ca, "tls.hosts", "tls.hosts")


def _tls_context(
    certificate: Path, key: Path, client_ca: Path | None, certificate_name: str, key_name: str
) -> ssl.SSLContext:
    named = [(certificate_name, certificate), (key_name, key)]
    for name, file in [*named, ("tls.client_ca", client_ca)] if client_ca else named:
        if not os.access(file, os.R_OK):
            raise InvalidConfiguration(f"{file} does not exist or is not readable", name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error.strerror
        problem = f"{certificate} and {key} are not a certificate and its key in PEM format ({reason})"
        raise InvalidConfiguration(problem, certificate_name) from None
    if client_ca is not None:
        _ask_clients(context, client_ca)
    return context


def _ask_clients(context: ssl.SSLContext, authorities: Path) -> None:
    """Ask clients for a certificate: it is optional, but must be valid."""
    try:
        context.load_verify_locations(authorities)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error.strerror
        raise InvalidConfiguration(f"{authorities} contains no PEM certificates ({reason})", "tls.client_ca") from None
    context.verify_mode = ssl.CERT_OPTIONAL


def _bound(family: socket.AddressFamily, address: str, port: int, flag: str) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((address, port))
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        remedy = f"choose another with {flag} (0 = any free port)"
        raise CannotListen(f"cannot listen on {address} port {port}: {error.strerror}; {remedy}") from None
    return bound


OWNER_ONLY = 0o177
"""The umask for the file: mode 0600."""
SCHEME = "http+unix"


class UnixSocket:
    """A bound Unix socket and its file, until `close`: for clients on this machine that run as the same user.

    The file outlives a killed server. A file on which no process listens is replaced, any other stays.
    """

    def __init__(self, path: Path, flag: str) -> None:
        """Binds it; nothing is accepted before its server starts. `flag` sets that path. Raises CannotListen."""
        self.path = Path(os.path.abspath(path))
        _make_way(self.path, flag)
        self.bound = _bound_file(self.path, flag)
        self._file: Path | None = self.path

    @property
    def url(self) -> str:
        """Its URL: `http+unix:///run/headwater.sock`."""
        return f"{SCHEME}://{quote(str(self.path))}"

    def remove_file(self) -> None:
        """Remove the file; open connections stay. Call it while listening: then the file is its own."""
        path, self._file = self._file, None
        if path is not None:
            with contextlib.suppress(FileNotFoundError):  # removed by other means
                path.unlink()

    def close(self) -> None:
        """Close it. May be called again."""
        self.remove_file()
        self.bound.close()


def _make_way(path: Path, flag: str) -> None:
    """Remove the file of a server that no longer runs."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise _cannot(path, error.strerror or str(error), flag) from None
    if not stat.S_ISSOCK(found.st_mode):
        raise _cannot(path, "it exists and is not a socket", flag)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)  # do not wait for a living server with a full queue
        answer = asking.connect_ex(str(path))
    if answer == errno.ECONNREFUSED:
        path.unlink(missing_ok=True)
    elif answer != errno.ENOENT:
        problem = os.strerror(answer) if answer not in (0, errno.EAGAIN) else "another server listens on it"
        raise _cannot(path, problem, flag)


def _bound_file(path: Path, flag: str) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    rights = os.umask(OWNER_ONLY)  # from its first moment on
    try:
        bound.bind(str(path))
        bound.listen(BACKLOG)
        bound.setblocking(False)
    except OSError as error:  # a path that is too long raises an error without a number
        bound.close()
        raise _cannot(path, error.strerror or str(error), flag) from None
    finally:
        os.umask(rights)
    return bound


def _cannot(path: Path, problem: str, flag: str) -> CannotListen:
    return CannotListen(f"cannot listen on {path}: {problem}; choose another path with {flag}")


def watch_peer(connected: socket.socket) -> None:
    """Let the system detect within seconds that the peer's machine is unreachable."""
    if connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, SILENT_S), (socket.TCP_KEEPINTVL, PROBE_S), (socket.TCP_KEEPCNT, PROBES)
    ):  # fmt: skip
        connected.setsockopt(socket.IPPROTO_TCP, option, value)
