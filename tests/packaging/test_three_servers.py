"""deploy/compose and deploy/kubernetes/three.yaml: what they say fits together, and their very commands make a home."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from headwater.amqp.client import Client
from headwater.amqp.protocol.conditions import AmqpError
from headwater.amqp.protocol.performatives import Accepted
from headwater.server.config.sources import load
from headwater.server.front.health import LIVE, READY
from headwater.server.replicas.membership import advertised
from headwater.server.users.accounts import hash_password
from tests.homes.postgres_server import postgres

from ..amqp.asking import EARLIEST, message, payloads
from ..waiting import eventually
from .container_files import Database, Names, Server, compose, done, fast_folder, variables_of
from .test_deployment import DEPLOY, POD, instructions

COMPOSE = DEPLOY / "compose"
PASSWORDS = {"OWNER_PASSWORD": "secret-o", "HEADWATER_PASSWORD": "secret-h", "REPLICATION_PASSWORD": "secret-r"}
SERVICES = compose(COMPOSE / "compose.yaml", PASSWORDS)
SERVERS = ("a", "b", "c")
MANIFESTS = {
    (each["kind"], each["metadata"]["name"]): each
    for each in yaml.safe_load_all((DEPLOY / "kubernetes/three.yaml").read_text("utf-8"))
}
SET = MANIFESTS["StatefulSet", "headwater"]["spec"]
TEMPLATE = SET["template"]
[CONTAINER] = TEMPLATE["spec"]["containers"]
JOB = MANIFESTS["Job", "headwater-home"]["spec"]["template"]["spec"]
USER = "admin:long%20enough@"


def with_user(text: str, tmp_path: Path) -> Path:
    """A configuration file with the user that it only shows."""
    shown = re.sub(r"^#(?=\[users|password = |grants = )", "", text, flags=re.MULTILINE)
    file = tmp_path / "headwater.toml"
    file.write_text(shown.replace("$scrypt$...", hash_password("long enough")), encoding="utf-8")
    return file


def arguments(command: list[str], configuration: Path) -> list[str]:
    """A command with its configuration where the test has it."""
    assert command[:2] == ["serve", "--config"]
    return [*command[:2], str(configuration), *command[3:]]


def takes(server: Server, log: str, body: bytes) -> bool:
    """Whether it takes a message; a client connects again while the servers get to know their primary."""
    try:
        with Client(f"amqp://{USER}{server.amqp}", timeout_s=60) as client:
            return client.sender(log).send(message(body)) == Accepted()
    except (AmqpError, OSError):
        return False


def check_that_each_serves_everybody(servers: Mapping[str, Server], log: str) -> None:
    """One address for all clients: whichever server is behind it, and whoever is the primary."""
    for number, server in enumerate(servers.values(), start=1):
        eventually(lambda server=server: server.status(f"{READY}?role=any") == 200)
        eventually(lambda server=server: takes(server, log, b"m"))
        with Client(f"amqp://{USER}{server.amqp}", timeout_s=60) as client:
            assert payloads(client.receiver(log, filter=EARLIEST).take(number, 60)) == [b"m"] * number
    primaries = [each for each in servers.values() if each.status(READY) == 200]
    assert len(primaries) == 1
    assert [each.status(LIVE) for each in servers.values()] == [200] * len(servers)
    primaries[0].close()
    others = [each for each in servers.values() if each is not primaries[0]]
    eventually(lambda: any(each.status(READY) == 200 for each in others))
    for each in others:
        eventually(lambda each=each: takes(each, log, b"n"))
        assert each.status(f"{READY}?role=any") == 200


@contextmanager
def below_nobody() -> Iterator[Path]:
    """A directory that PostgreSQL's user can reach."""
    with tempfile.TemporaryDirectory(dir=fast_folder(), prefix="headwater-compose-") as made:
        os.chmod(made, 0o755)
        yield Path(made)


@pytest.mark.timeout(300)
def test_the_commands_of_the_compose_file_make_three_servers_and_a_waited_for_standby(tmp_path: Path) -> None:
    names = Names("db-1:5432", "db-2:5432", *(f"{name}:{port}" for name in SERVERS for port in (8080, 5672)))
    configuration = with_user((COMPOSE / "headwater.toml").read_text("utf-8"), tmp_path)
    with ExitStack() as ending:
        below = ending.enter_context(below_nobody())
        for name in ("db-1", "db-2"):
            database = Database(SERVICES[name], name, names, COMPOSE, below)
            ending.enter_context(closing(database))
        for name in ("init", "promotion"):
            told = done(SERVICES[name]["command"], SERVICES[name]["environment"], names)
        assert "waited-for" in told
        owned = names(SERVICES["init"]["environment"]["HEADWATER_HOME"])
        with psycopg.connect(owned) as connection:
            rows = connection.execute("SELECT application_name, sync_state FROM pg_stat_replication").fetchall()
            assert rows == [("db_2", "sync")]
        servers = {}
        for name in SERVERS:
            service = SERVICES[name]
            given = arguments(service["command"], configuration)
            servers[name] = Server(given, service["environment"], name, names, tmp_path / name)
            ending.enter_context(closing(servers[name]))
        check_that_each_serves_everybody(servers, "orders")
        done(["home", "check"], SERVICES["a"]["environment"], names)


@pytest.mark.timeout(300)
def test_the_commands_of_the_manifest_make_a_home_that_three_pods_share(tmp_path: Path) -> None:
    pods = [f"headwater-{number}" for number in range(SET["replicas"])]
    places = [f"{pod}.{SET['serviceName']}.logs:{port}" for pod in pods for port in (8080, 5672)]
    names = Names(*places)
    text = MANIFESTS["Secret", "headwater"]["stringData"]["headwater.toml"]
    configuration = with_user(text, tmp_path)
    with ExitStack() as ending:
        database = ending.enter_context(postgres())
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute("CREATE ROLE owner LOGIN PASSWORD 'CHANGE-ME'")  # the role of the servers is there
            connection.execute("CREATE DATABASE headwater OWNER owner")
        there = f"127.0.0.1:{database.port}/headwater"
        address = MANIFESTS["Secret", "headwater-home"]["stringData"]["address"]
        given = {
            ("headwater-db-app", "uri"): f"postgresql://owner:CHANGE-ME@{there}",
            ("headwater-home", "address"): address.replace("headwater-db-rw:5432/headwater", there),
            ("", "metadata.namespace"): "logs",
        }
        for container in (*JOB["initContainers"], *JOB["containers"]):
            told = done(container["args"], variables_of(container, given), names)
        assert "managed" in told
        servers = {}
        for pod in pods:
            variables = variables_of(CONTAINER, given | {("", "metadata.name"): pod})
            name = f"{pod}.{SET['serviceName']}.logs"
            servers[pod] = Server(arguments(CONTAINER["args"], configuration), variables, name, names, tmp_path / pod)
            ending.enter_context(closing(servers[pod]))
        check_that_each_serves_everybody(servers, "default")


def test_the_compose_file_fits_the_image_and_its_own_names(tmp_path: Path) -> None:
    raw = yaml.safe_load((COMPOSE / "compose.yaml").read_text("utf-8"))
    assert set(raw) <= {"name", "services", "volumes", "x-server", "x-home", "x-owned"}
    known = {
        "image", "command", "entrypoint", "environment", "volumes", "ports", "depends_on", "restart", "healthcheck",
        "stop_grace_period", "read_only", "tmpfs", "cap_drop", "user",
    }  # fmt: skip
    for name, service in SERVICES.items():
        assert set(service) <= known, name
        for other, condition in service.get("depends_on", {}).items():
            needed = {"service_healthy": "healthcheck", "service_completed_successfully": "command"}
            assert needed[condition["condition"]] in SERVICES[other], name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (COMPOSE / source).is_file() if source.startswith("./") else source in raw["volumes"], volume
    hosts = set(re.findall(r"//(?:\w+:[^@]+@)?([\w-]+(?=:))", str(SERVICES))) - {"127"}
    assert hosts <= set(SERVICES), hosts
    published = [port.split(":")[1] for name in SERVERS for port in SERVICES[name]["ports"]]
    assert len(published) == len(set(published))
    inside = {port.rpartition(":")[2] for name in SERVERS for port in SERVICES[name]["ports"]}
    assert inside == set(instructions("EXPOSE")[0].split())
    config = load({}, file=COMPOSE / "headwater.toml", environment=SERVICES["a"]["environment"])
    assert int(SERVICES["a"]["stop_grace_period"].rstrip("s")) * 1000 >= 2 * config.limits.stop_ms
    assert set(advertised(config)) == {"http", "amqp", "flight"}


REQUIRED = {
    "Secret": ("stringData",), "Service": ("spec.selector", "spec.ports"), "PodDisruptionBudget": ("spec.selector",),
    "StatefulSet": ("spec.selector", "spec.serviceName", "spec.template"), "Job": ("spec.template",),
    "Cluster": ("spec.instances", "spec.storage.size"),
}  # fmt: skip
"""What the schemas of the kinds require, and what these manifests could forget."""
VERSIONS = {
    "Secret": "v1", "Service": "v1", "PodDisruptionBudget": "policy/v1", "StatefulSet": "apps/v1", "Job": "batch/v1",
    "Cluster": "postgresql.cnpg.io/v1",
}  # fmt: skip


def test_the_manifests_have_what_their_kinds_require_and_name_each_other() -> None:
    for (kind, name), manifest in MANIFESTS.items():
        assert manifest["apiVersion"] == VERSIONS[kind], name
        for path in REQUIRED[kind]:
            value: Any = manifest
            for key in path.split("."):
                value = value[key]
            assert value, (name, path)
    labels = TEMPLATE["metadata"]["labels"]
    for kind, name in (
        ("Service", "headwater"),
        ("Service", "headwater-servers"),
        ("PodDisruptionBudget", "headwater"),
    ):
        spec = MANIFESTS[kind, name]["spec"]
        selector = spec["selector"].get("matchLabels", spec["selector"])
        assert selector.items() <= labels.items()
        assert (
            not selector.items() <= MANIFESTS["Job", "headwater-home"]["spec"]["template"]["metadata"]["labels"].items()
        )
    assert SET["selector"]["matchLabels"].items() <= labels.items()
    assert ("Service", SET["serviceName"]) in MANIFESTS
    assert MANIFESTS["Service", "headwater-servers"]["spec"]["publishNotReadyAddresses"], (
        "a new primary is not ready yet"
    )
    assert MANIFESTS["PodDisruptionBudget", "headwater"]["spec"]["maxUnavailable"] == 1
    secrets = {name for kind, name in MANIFESTS if kind == "Secret"} | {"headwater-db-app"}
    asked = {
        each["valueFrom"]["secretKeyRef"]["name"]
        for container in (CONTAINER, *JOB["initContainers"], *JOB["containers"])
        for each in container["env"]
        if "secretKeyRef" in each.get("valueFrom", {})
    }
    assert asked <= secrets
    cluster = MANIFESTS["Cluster", "headwater-db"]["spec"]
    [role] = cluster["managed"]["roles"]
    secret = MANIFESTS["Secret", role["passwordSecret"]["name"]]["stringData"]
    assert role["name"] == secret["username"]
    assert cluster["postgresql"]["synchronous"]["dataDurability"] == "required"
    assert "headwater-db-rw" in MANIFESTS["Secret", "headwater-home"]["stringData"]["address"]


def test_the_pods_differ_from_a_single_one_only_where_they_must(tmp_path: Path) -> None:
    paths = {name: CONTAINER[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": LIVE, "liveness": LIVE, "readiness": f"{READY}?role=any"}
    spec = TEMPLATE["spec"]
    for name in ("securityContext", "volumes", "automountServiceAccountToken", "enableServiceLinks"):
        assert spec[name] == POD[name]
    [single] = POD["containers"]
    for name in ("image", "args", "ports", "resources", "securityContext", "volumeMounts"):
        assert CONTAINER[name] == single[name]
    file = tmp_path / "headwater.toml"
    file.write_text(MANIFESTS["Secret", "headwater"]["stringData"]["headwater.toml"], encoding="utf-8")
    config = load({}, file=file, environment={})
    assert spec["terminationGracePeriodSeconds"] * 1000 > 2 * config.limits.stop_ms
    ports = {each["name"]: each["port"] for each in MANIFESTS["Service", "headwater"]["spec"]["ports"]}
    assert ports == {"http": config.http.port, "amqp": config.amqp.port, "flight": config.flight.port}
