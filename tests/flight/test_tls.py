from __future__ import annotations

import pytest

from headwater.flight.client import BulkClient
from headwater.formats.clients.retry import ServerUnreachable
from tests.amqp.certificates import Authority

from .conftest import batch
from .memory_backend import MemoryBackend, serving


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"), "our authority")


@pytest.fixture(scope="module")
def certificate(authority):
    return authority.issue("localhost", "DNS:localhost,IP:127.0.0.1")


@pytest.fixture
def port(store, log, certificate):
    pair = {"certificate": certificate.file.read_bytes(), "key": certificate.key.read_bytes()}
    with serving(MemoryBackend(store), "grpc+tls://127.0.0.1:0", **pair) as server:
        yield server.port


def test_a_server_with_a_certificate_is_spoken_to_over_tls(port, authority):
    with BulkClient(f"grpc+tls://localhost:{port}", ca_file=str(authority.own.file)) as client:
        assert client.logs() == ["orders"]
        assert client.append("orders", batch("A"))[0].first == 101


def test_a_certificate_of_an_unknown_authority_is_refused_unless_it_is_not_looked_at(port):
    with BulkClient(f"grpc+tls://127.0.0.1:{port}", retries=0) as client, pytest.raises(ServerUnreachable):
        client.logs()
    with BulkClient(f"grpc+tls://127.0.0.1:{port}", is_verified=False) as client:
        assert client.logs() == ["orders"]


def test_a_client_without_tls_gets_nothing(port):
    with BulkClient(f"grpc://127.0.0.1:{port}", retries=0) as client, pytest.raises(ServerUnreachable):
        client.logs()
