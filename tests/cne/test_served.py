"""The front end in a real server: its settings, its end by SIGKILL, and client certificates."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.interop.install import unavailable
from tests.server.running import SILENCE_S_MAX, RunningServer, headwater
from tests.server.starting import PROGRAM
from tests.waiting import eventually

from .builders import NODE_SYNC_STATE
from .world import V1, V2


class Sink:
    """A subscriber on a thread; `is_up` False makes it break connections off."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self.is_up = True
        self.changed = threading.Condition()
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if not sink.is_up:
                    self.close_connection = True
                    return
                self.send_response(204)
                self.end_headers()
                with sink.changed:
                    if body:
                        sink.values.append(json.loads(body)["data"]["values"][0]["value"])
                    sink.changed.notify_all()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    @property
    def uri(self) -> str:
        return f"http://localhost:{self.server.server_port}/event"

    def until(self, holds: Any) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: holds(self.values), SILENCE_S_MAX), self.values

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def sink() -> Iterator[Sink]:
    made = Sink()
    yield made
    made.close()


def publish(server: RunningServer, id: str, value: str, address: str = NODE_SYNC_STATE) -> None:
    content = {"ResourceAddress": address, "data_type": "notification", "value_type": "enumeration"}
    data = {"version": "1.0", "values": [{**content, "value": value}]}
    event = {"id": id, "type": "event.sync", "source": "/s", "data": data}
    assert server.ask(f"{V2}/create/event", json.dumps(event).encode())[0] == 202


def test_acknowledged_events_and_subscriptions_survive_sigkill(tmp_path: Path, sink: Sink) -> None:
    arguments = ("--data", "d", "--cne-retry-ms-max", "100ms")
    with RunningServer(*arguments, cwd=tmp_path, program=PROGRAM) as server:
        made = server.ask(f"{V2}/publishers", json.dumps({"ResourceAddress": NODE_SYNC_STATE}).encode())
        id = json.loads(made[1])["SubscriptionId"]
        publish(server, id, "LOCKED")
        body = json.dumps({"EndpointUri": sink.uri, "ResourceAddress": NODE_SYNC_STATE}).encode()
        status, subscribed = server.ask(f"{V2}/subscriptions", body)
        assert status == 201
        publish(server, id, "HOLDOVER")
        sink.until(lambda values: values == ["LOCKED", "HOLDOVER"])
        sink.is_up = False
        publish(server, id, "FREERUN")
        server.process.kill()
        server.process.wait(SILENCE_S_MAX)
    sink.is_up = True
    with RunningServer(*arguments, cwd=tmp_path, program=PROGRAM) as server:
        state = json.loads(server.ask(f"{V2}{NODE_SYNC_STATE}/CurrentState")[1])
        assert state["data"]["values"][0]["value"] == "FREERUN"
        sink.until(lambda values: values[-1:] == ["FREERUN"])
        assert list(dict.fromkeys(sink.values)) == ["LOCKED", "HOLDOVER", "FREERUN"]
        publish(server, id, "LOCKED")
        sink.until(lambda values: values[-1:] == ["LOCKED"])
        own = f"webhook:cne/{json.loads(subscribed)['SubscriptionId']}/lag_seconds"
        eventually(lambda: own in json.loads(server.ask("/console/history")[1])["series"])
        metrics = server.ask("/metrics")[1]
        assert 'headwater_webhooks{standing="delivering"} 1.0' in metrics
        assert 'headwater_consumer_lag_events{component="cne",log="cne",owner="headwater"}' in metrics
        assert len(json.loads(server.ask(f"{V1}/subscriptions")[1])) == 1
        assert server.terminate() == 0
        assert "Traceback" not in server.errors and "level=error" not in server.errors


def test_consumer_of_a_node_gets_the_events_of_an_instance_on_it(tmp_path: Path, sink: Sink) -> None:
    resource = "/sync/ptp-status/lock-state"
    address, asked = f"/./controller-0/ptp-inst1{resource}", f"/./controller-0{resource}"
    with RunningServer("--storage", "memory", cwd=tmp_path) as server:
        made = server.ask(f"{V2}/publishers", json.dumps({"ResourceAddress": address}).encode())
        id = json.loads(made[1])["SubscriptionId"]
        publish(server, id, "FREERUN", address)
        body = json.dumps({"EndpointUri": sink.uri, "ResourceAddress": asked}).encode()
        assert server.ask(f"{V2}/subscriptions", body)[0] == 201
        publish(server, id, "LOCKED", address)
        sink.until(lambda values: values == ["FREERUN", "LOCKED"])
        state = json.loads(server.ask(f"{V2}{asked}/CurrentState")[1])
        assert (
            state["data"]["values"][0] | {"ResourceAddress": address, "value": "LOCKED"} == state["data"]["values"][0]
        )


def test_server_without_any_event_makes_no_log(tmp_path: Path) -> None:
    with RunningServer("--storage", "memory", cwd=tmp_path) as server:
        assert server.ask(f"{V2}/health") == (200, "OK")
        assert server.ask("/health") == (200, '{"health":true}')
        for path in ("/API/OCLOUDNOTIFICATIONS/V2/HEALTH", "/OcloudNotifications/v2/health"):
            assert server.ask(path) == (200, "OK")
        assert server.ask(f"{V2}/subscriptions") == (200, "[]")
        assert server.ask(f"{V2}/x/CurrentState") == (404, "")
        assert server.ask("/logs/cne")[0] == 404
        metrics = server.ask("/metrics")[1]
        assert 'route="/ocloudNotifications/v2/{ResourceAddress}/CurrentState"' in metrics
        assert 'headwater_webhooks{standing="suspended"} 0.0' in metrics
        assert server.terminate() == 0


def test_malformed_settings_are_told(tmp_path: Path) -> None:
    for flag, value in (("--cne-log", "no/log"), ("--cne-node", "a/b"), ("--cne-hosts", "10.0.0.0/33")):
        refused = headwater("serve", "--http-port", "0", "--amqp-port", "0", flag, value, cwd=tmp_path)
        assert refused.returncode == 2 and flag in refused.stderr, refused.stderr
    refused = headwater("serve", "--http-port", "0", "--amqp-port", "0", "--cne-client-certificates", cwd=tmp_path)
    assert refused.returncode == 2 and "tls.client_ca" in refused.stderr


def test_certificates_of_webhooks_that_cannot_be_used_are_told(tmp_path: Path, authority: Path) -> None:
    for more, told in (
        (("--cne-webhook-certificate", "server.pem"), "cne.webhook_key"),
        (("--cne-webhook-ca", "server.key"), "cne.webhook_ca"),
        (("--cne-webhook-ca", "nowhere.pem"), "nowhere.pem"),
        (("--cne-webhook-certificate", "server.pem", "--cne-webhook-key", "consumer.key"), "cne.webhook_certificate"),
    ):
        paths = [text if text.startswith("--") else str(authority / text) for text in more]
        refused = headwater(
            "serve", "--http-port", "0", "--amqp-port", "0", "--storage", "memory", *paths, cwd=tmp_path
        )
        assert refused.returncode == 2 and told in refused.stderr, refused.stderr


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an authority, and certificates of the server and of a client that it has signed."""
    if shutil.which("openssl") is None:
        unavailable("the program openssl makes the certificates, and is not here")
    directory = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-days", "1", "-subj", "/CN=authority", "-out", "ca.pem", "-keyout", "ca.key")
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "consumer"):
        openssl("req", *key, "-subj", f"/O=Example/CN={name}", "-out", f"{name}.csr", "-keyout", f"{name}.key")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "1", "-extfile", "names")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    return directory


def test_changes_need_a_certificate_that_the_authority_signed(tmp_path: Path, authority: Path) -> None:
    arguments = ["--storage", "memory", "--cne-client-certificates"]
    for flag, name in (("certificate", "server.pem"), ("key", "server.key"), ("client-ca", "ca.pem")):
        arguments += [f"--tls-{flag}", str(authority / name)]
    anybody = ssl.create_default_context(cafile=authority / "ca.pem")
    body = json.dumps({"ResourceAddress": NODE_SYNC_STATE}).encode()
    with RunningServer(*arguments, cwd=tmp_path, context=anybody) as server:
        assert server.ask(f"{V2}/publishers") == (200, "[]")
        assert server.ask(f"{V2}/publishers", body)[0] == 401
        known = ssl.create_default_context(cafile=authority / "ca.pem")
        known.load_cert_chain(authority / "consumer.pem", authority / "consumer.key")
        server._context = known
        assert server.ask(f"{V2}/publishers", body)[0] == 201
        assert server.ask("/logs/default/head")[0] == 200
        assert server.terminate() == 0
