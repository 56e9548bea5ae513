"""What a compose file and Kubernetes manifests say, run as processes of this machine: commands, arguments, variables.

Images, volumes, networks and probes by a cluster are not there: a name and port of the files is a port of loopback.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.homes.postgres_server import binaries, fast_folder
from tests.ports import free_ports
from tests.server.starting import PROGRAM, start

from ..waiting import eventually

NOBODY = 65534
"""Who runs PostgreSQL, which refuses to be root."""
_VARIABLE = re.compile(r"\$\{(\w+):\?\}")
_REFERENCE = re.compile(r"\$\((\w+)\)")


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """What compose makes of `${NAME:?}` anywhere in a value; a missing variable is an error."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: variables[found[1]], value)
    if isinstance(value, list):
        return [interpolated(each, variables) for each in value]
    if isinstance(value, dict):
        return {key: interpolated(each, variables) for key, each in value.items()}
    return value


def compose(file: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """The services of a compose file."""
    found: dict[str, Any] = interpolated(yaml.safe_load(file.read_text("utf-8")), variables)["services"]
    return found


def variables_of(container: Mapping[str, Any], given: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """The environment of a container; `given`: values of secrets by name and key, and of fields by ("", path)."""
    found: dict[str, str] = {}
    for each in container["env"]:
        if "value" in each:
            found[each["name"]] = _REFERENCE.sub(lambda name: found[name[1]], each["value"])
        elif secret := each["valueFrom"].get("secretKeyRef"):
            found[each["name"]] = given[secret["name"], secret["key"]]
        else:
            found[each["name"]] = given["", each["valueFrom"]["fieldRef"]["fieldPath"]]
    return found


class Names:
    """Names and ports of the files, each a port of loopback."""

    def __init__(self, *places: str) -> None:
        """`places`: those that are used, as `NAME:PORT`."""
        self.ports = dict(zip(places, free_ports(len(places)), strict=True))

    def __call__(self, text: str) -> str:
        """A text in which each of them is replaced, also as libpq writes it."""
        for place, port in self.ports.items():
            name, _, number = place.partition(":")
            text = re.sub(rf"(?<![\w.-]){re.escape(place)}(?!\d)", f"127.0.0.1:{port}", text)
            text = text.replace(f"host={name} port={number} ", f"host=127.0.0.1 port={port} ")
        return text


class Server:
    """A server of the files: its arguments and variables, on the ports of a test."""

    def __init__(self, arguments: Sequence[str], variables: Mapping[str, str], name: str, names: Names, data: Path):
        """`name`: of its ports in `names`."""
        ports = {word: names.ports[f"{name}:{port}"] for word, port in (("http", 8080), ("amqp", 5672))}
        self.url, self.amqp = f"http://127.0.0.1:{ports['http']}", f"127.0.0.1:{ports['amqp']}"
        own = ["--data", str(data), "--host", "127.0.0.1", "--flight-enabled", "false"]
        own += [f"--{word}-port={port}" for word, port in ports.items()]
        with (data.parent / f"{name}.log").open("ab") as log:
            self.process = start([*arguments, *own], env=environment(variables, names), stdout=log, stderr=log)

    def status(self, path: str) -> int:
        """How it answers a probe; 0 if it does not."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            refused.close()
            return refused.code
        except OSError:
            return 0

    def close(self) -> None:
        self.process.kill()
        self.process.wait(60)


def environment(variables: Mapping[str, str], names: Names) -> dict[str, str]:
    """That of a container: nothing of this machine's but where programs and libraries are."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADWATER_", "PG"))}
    return kept | {name: names(value) for name, value in variables.items()}


def done(arguments: Sequence[str], variables: Mapping[str, str], names: Names) -> str:
    """What `headwater` prints with these arguments, which must succeed."""
    ended = subprocess.run(
        [*PROGRAM, *arguments], env=environment(variables, names), capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


class Database:
    """A service with the image of PostgreSQL: its first start, its scripts, and its command."""

    def __init__(self, service: Mapping[str, Any], name: str, names: Names, beside: Path, directory: Path) -> None:
        """`beside`: the directory of the compose file."""
        self.folder, self._service, self._names = Path(directory) / name, service, names
        self.folder.mkdir(mode=0o755)
        self._port = names.ports[f"{name}:5432"]
        self._bin = binaries()
        shutil.copytree(beside, self.folder / "files")
        for each in (self.folder, self.folder / "files"):
            os.chown(each, NOBODY, NOBODY)
        self._environment = environment(
            {**service["environment"], "PGDATA": str(self.folder / "data"), "PGHOST": str(self.folder)}, names
        ) | {"PATH": f"{self._bin}:{os.environ['PATH']}", "PGPORT": str(self._port)}
        if "entrypoint" not in service:
            self._first_start()
        command = [*self._entrypoint(), *service["command"], *self._place("127.0.0.1")]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, **self._as_nobody())
        eventually(self.is_healthy, lambda: (self.folder / "log").read_text()[-4000:])

    def is_healthy(self) -> bool:
        """What its health check says, over the network as its clients come."""
        [_, program, *arguments] = self._service["healthcheck"]["test"]
        where = self._as_nobody() | {"env": self._environment | {"PGHOST": "127.0.0.1"}}
        return subprocess.run([self._bin / program, *arguments], capture_output=True, **where).returncode == 0

    def run(self, script: str) -> str:
        """What a shell in its container prints."""
        ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, **self._as_nobody())
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)  # it waits for no client
        self.process.wait(60)

    def _entrypoint(self) -> list[str]:
        """The script of a service that has one, in the directory of the file."""
        mounted = dict(each.split(":")[1::-1] for each in self._service["volumes"] if each.startswith("./"))
        return [
            str(self.folder / "files" / mounted[word].removeprefix("./")) if word in mounted else word
            for word in self._service.get("entrypoint", ())
        ]

    def _first_start(self) -> None:
        """As the image does it: a database and its owner, and the scripts, before anybody can connect from outside."""
        given, password = self._service["environment"], self.folder / "password"
        password.write_text(given["POSTGRES_PASSWORD"])
        os.chown(password, NOBODY, NOBODY)
        log, quoted = self.folder / "first.log", " ".join(self._place(""))
        scripts = [each.split(":")[0] for each in self._service["volumes"] if "/docker-entrypoint-initdb.d/" in each]
        self.run(
            f"""set -e
            initdb -D "$PGDATA" -U "$POSTGRES_USER" -A trust --pwfile {password} -E UTF8 --no-locale
            echo 'host all all all scram-sha-256' > "$PGDATA/pg_hba.conf"
            echo 'local all all trust' >> "$PGDATA/pg_hba.conf"
            pg_ctl -D "$PGDATA" -w -l {log} -o "{quoted}" start
            createdb -U "$POSTGRES_USER" "$POSTGRES_DB"
            {"; ".join(f"bash files/{each.removeprefix('./')}" for each in scripts)}
            pg_ctl -D "$PGDATA" -w -m fast stop
            """
        )

    def _place(self, host: str) -> list[str]:
        settings = {"port": self._port, "listen_addresses": host, "unix_socket_directories": self.folder,
                    "shared_buffers": "16MB", "dynamic_shared_memory_type": "mmap"}  # fmt: skip
        return [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]

    def _as_nobody(self) -> dict[str, Any]:
        return {"user": NOBODY if os.geteuid() == 0 else None, "cwd": self.folder, "env": self._environment}


__all__ = ["Database", "Names", "Server", "compose", "done", "fast_folder", "variables_of"]
