"""What is in deploy/three fits the program, and each other: a drop-in, a configuration, a load balancer that is run."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headwater.server.config.sources import load
from headwater.server.front.health import READY, ServerRole
from headwater.server.replicas.membership import advertised
from headwater.server.users.accounts import hash_password

from ..interop.install import unavailable
from ..interop.runtimes import HaProxy
from ..ports import free_ports
from ..waiting import eventually
from .test_deployment import COMMENTED, DEPLOY, UNIT

THREE = DEPLOY / "three"
DROP_IN = (THREE / "home.conf").read_text(encoding="utf-8")
BALANCER = (THREE / "haproxy.cfg").read_text(encoding="utf-8")
SAMPLE = THREE / "headwater.toml"
MACHINES = ("a", "b", "c")
VARIABLE = re.compile(r"^#?Environment=(\w+)=(.*)$", re.MULTILINE)


def test_each_machine_advertises_the_ports_of_the_configuration_by_its_name() -> None:
    found = [value for name, value in VARIABLE.findall(DROP_IN) if name == "HEADWATER_ADVERTISE"]
    assert len(found) == 2, "without TLS, and with it"
    for value in found:
        config = load({}, file=SAMPLE, environment={"HEADWATER_ADVERTISE": value.replace("%H", "a.example")})
        assert {int(port) for port in re.findall(r"a\.example:(\d+)", BALANCER)} == {
            config.http.port, config.amqp.port, config.amqp.read_port, config.flight.port,
        }  # fmt: skip
        ports = {"http": config.http.port, "amqp": config.amqp.port, "flight": config.flight.port}
        given = advertised(config)
        assert {protocol: int(url.rpartition(":")[2]) for protocol, url in given.items()} == ports
        assert all("://a.example:" in url for url in given.values())


def test_the_sample_for_machines_of_a_home_is_taken_with_what_it_only_shows(tmp_path: Path) -> None:
    config = load({}, file=SAMPLE, environment={})
    assert config.home is not None and config.home.startswith("postgresql://") and "read-write" in config.home
    assert (config.host, config.home_lease_ms, dict(config.users)) == ("0.0.0.0", 5000, {})
    text = re.sub(r"^#(?=\[)", "", COMMENTED.sub("", SAMPLE.read_text(encoding="utf-8")), flags=re.MULTILINE)
    shown = tmp_path / "headwater.toml"
    shown.write_text(text.replace("$scrypt$...", hash_password("long enough")), encoding="utf-8")
    assert list(load({}, file=shown, environment={}).users) == ["admin"]


def test_the_load_balancer_holds_no_event_of_a_subscription_back() -> None:
    backends = dict(re.findall(r"^backend (\S+)\n((?:[ #].*\n|\n)*)", BALANCER, re.MULTILINE))
    serving = {name for name in re.findall(r"default_backend (\S+)", BALANCER) if "mode http\n" in backends[name]}
    assert serving == {"primary", "reads"}
    assert all("    option http-no-delay\n" in backends[name] for name in serving)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit_and_its_drop_in(tmp_path: Path) -> None:
    unit = tmp_path / "headwater.service"
    unit.write_text(UNIT.replace("/opt/headwater/bin/headwater", shutil.which("true") or ""), encoding="utf-8")
    beside = tmp_path / "headwater.service.d"
    beside.mkdir()
    (beside / "home.conf").write_text(DROP_IN, encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    named = [line for line in done.stderr.splitlines() if unit.name in line or "home.conf" in line]
    assert (done.returncode, named) == (0, [])


def test_the_drop_in_lets_a_server_wait_for_its_database_for_as_long_as_that_is_away() -> None:
    assert "StartLimitIntervalSec=0\n" in DROP_IN
    prevented = re.findall(r"^RestartPreventExitStatus=(.*)$", UNIT, re.MULTILINE)
    assert "4" not in prevented[0].split(), "what a home that cannot be reached ends with"


# The load balancer


class _Machine(ThreadingHTTPServer):
    """Stands for a server on all of its ports: it is ready in its role, and answers all else with its name."""

    daemon_threads = True

    def __init__(self, name: str) -> None:
        machine = self
        self.name, self.role = name, ""

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path, _, role = self.path.partition("?role=")
                is_fine = path != READY or role == machine.role
                body = machine.name.encode()
                self.send_response(200 if is_fine else 503)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """The test says what is wrong."""

        super().__init__(("127.0.0.1", 0), Handler)

    @contextmanager
    def serving(self) -> Iterator[None]:
        thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


def test_whoever_writes_is_led_to_the_primary_and_whoever_reads_to_all(tmp_path: Path) -> None:
    haproxy = HaProxy()
    if (reason := haproxy.missing()) is not None:
        unavailable(reason)
    with ExitStack() as ending:
        machines = {name: _Machine(name) for name in MACHINES}
        for machine in machines.values():
            ending.enter_context(machine.serving())
        places = free_ports(6)
        ports = dict(zip(re.findall(r"^    bind :(\d+)$", BALANCER, re.MULTILINE), places, strict=True))
        text = re.sub(r"([abc])\.example:\d+", lambda found: f"127.0.0.1:{machines[found[1]].server_port}", BALANCER)
        text = re.sub(r"(?<=bind ):(\d+)", lambda found: f"127.0.0.1:{ports[found[1]]}", text)
        text = re.sub(r"maxconn \d+", "maxconn 100", text)  # each takes two descriptors of what this machine allows
        configuration = tmp_path / "haproxy.cfg"
        configuration.write_text(text, encoding="utf-8")
        checked = subprocess.run([*haproxy.command(), configuration, "-c"], capture_output=True, text=True, timeout=60)
        assert (checked.returncode, checked.stderr) == (0, ""), checked.stderr
        told = tmp_path / "told"
        with told.open("ab") as file:
            balancer = subprocess.Popen([*haproxy.command(), configuration, "-db"], stdout=file, stderr=file)
        ending.callback(balancer.wait, 60)
        ending.callback(balancer.kill)

        def answers(port: str, count: int = 1) -> set[str]:
            """Who answers at a port of the load balancer, in so many connections."""
            found = set()
            for _ in range(count):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{ports[port]}/", timeout=10) as answer:
                        found.add(answer.read().decode())
                except urllib.error.HTTPError as refused:
                    refused.close()
                    found.add(str(refused.code))
                except (OSError, HTTPException):  # also one that the load balancer broke off: its server went away
                    found.add("nobody")
            return found

        def are(**roles: str) -> None:
            for name, machine in machines.items():
                machine.role = roles.get(name, "")

        def lead_to(name: str, *ports: str) -> None:
            for port in ports:
                eventually(partial(lambda port: answers(port, 3) == {name}, port), lambda: told.read_text())

        primary, replica = ServerRole.PRIMARY.value, ServerRole.REPLICA.value
        are(a=primary, b=replica, c=replica)
        lead_to("a", "8080", "5672", "8815")
        for port in ("8081", "5673", "8816"):
            eventually(partial(lambda port: {"b", "c"} <= answers(port, 6) <= {"a", "b", "c"}, port))
        are(b=primary, c=replica)
        lead_to("b", "8080", "5672", "8815")
        eventually(lambda: "c" in (found := answers("8081", 6)) and found <= {"b", "c"})
        are(c=primary)  # it is alone: it serves reads, too
        lead_to("c", *ports)
        are()
        eventually(lambda: answers("8080") == answers("8081") == {"503"})
        eventually(lambda: answers("5672") == {"nobody"})
