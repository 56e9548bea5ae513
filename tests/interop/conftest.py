"""The servers and the clients of the tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.server.users.accounts import hash_password

from .driving import Client
from .install import unavailable
from .runtimes import Runtime
from .serving import PASSWORD, USER, Broker, Certificates


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A server on loopback where all requests are allowed without credentials."""
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """What TLS needs."""
    try:
        return Certificates(tmp_path_factory.mktemp("tls"))
    except FileNotFoundError:
        unavailable("the program openssl makes the certificates, and is not here")


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Broker]:
    """A server with TLS and one user."""
    directory = tmp_path_factory.mktemp("secured")
    users = f"[users.{USER}]\npassword = '{hash_password(PASSWORD)}'\ngrants = ['all:*']\n"
    (directory / "headwater.toml").write_text(users)
    files = ["--tls-certificate", str(certificates.certificate), "--tls-key", str(certificates.key)]
    with Broker(directory, *files, "--log", "private", ca=certificates.certificate) as broker:
        yield broker


@pytest.fixture
def client(request: pytest.FixtureRequest, broker: Broker) -> Client:
    """The client of the class of the test, on `broker`."""
    return Client(_runtime(request), broker.amqp)


@pytest.fixture
def stranger(request: pytest.FixtureRequest, secured: Broker) -> Client:
    """The client of the class of the test, on `secured`; it has no credentials yet."""
    return Client(_runtime(request), secured.amqp)


def _runtime(request: pytest.FixtureRequest) -> Runtime:
    runtime: Runtime = request.cls.RUNTIME()
    if reason := runtime.missing():
        unavailable(reason)
    return runtime
