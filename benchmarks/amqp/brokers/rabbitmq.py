"""RabbitMQ of Debian 12 (3.10.8) with its AMQP 1.0 plugin, which translates to AMQP 0-9-1.

Release 4, which speaks AMQP 1.0 itself, is not in Debian 12. The queues are quorum queues: of the kinds that 3.10 has
they alone sync their write-ahead log before a message is confirmed; a stream does not sync, and the plugin of 3.10
cannot read one from its start. The packages are unpacked into the cache and not installed; `erl` there is told where
it is. epmd, which Erlang needs, is a process of ours on a port of its own.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..cache import debian_unpack, installed
from .broker import Broker, free_port

QUEUES = 16
_ERLANG = (
    "base asn1 crypto public-key mnesia runtime-tools ssl eldap ftp tftp inets snmp os-mon parsetools syntax-tools "
    "tools xmerl"
)
_PACKAGES = ["rabbitmq-server", *(f"erlang-{name}" for name in _ERLANG.split())]
_USER = "bench"


class RabbitMq(Broker):
    """A quorum queue, used again when it was emptied."""

    label = "rabbitmq"
    version = "Debian's 3.10, quorum queues"

    def _start(self) -> str:
        root = installed("rabbitmq", " ".join(_PACKAGES), _install, ["apt-get", "dpkg-deb"])
        erlang = root / "usr" / "lib" / "erlang"
        home = next((root / "usr" / "lib" / "rabbitmq" / "lib").glob("rabbitmq_server-*"))
        self.version = f"{home.name.partition('-')[2]} (AMQP 1.0 plugin), quorum queues"
        port, registry, distribution = free_port(), free_port(), free_port()
        self._configure(port)
        environment = self._environment(erlang, registry, distribution)
        epmd = next(erlang.glob("erts-*/bin/epmd"))
        self._spawn(epmd, "-port", str(registry), "-address", "127.0.0.1", environment=environment)
        self._spawn(home / "sbin" / "rabbitmq-server", environment=environment)
        self._wait_for("Server startup complete")
        return f"127.0.0.1:{port}"

    def _configure(self, port: int) -> None:
        quorum = {"x-queue-type": "quorum"}
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        definitions = {
            "users": [{"name": _USER, "password": _USER, "tags": []}],
            "vhosts": [{"name": "/"}],
            "permissions": [{"user": _USER, "vhost": "/", **everything}],
            "queues": [
                {"name": f"bench-{n}", "vhost": "/", "durable": True, "auto_delete": False, "arguments": quorum}
                for n in range(QUEUES)
            ],
        }
        (self.directory / "definitions.json").write_text(json.dumps(definitions))
        lines = [f"listeners.tcp.1 = 127.0.0.1:{port}", f"load_definitions = {self.directory / 'definitions.json'}"]
        (self.directory / "rabbitmq.conf").write_text("\n".join([*lines, ""]))
        (self.directory / "enabled_plugins").write_text("[rabbitmq_amqp1_0].\n")

    def _environment(self, erlang: Path, registry: int, distribution: int) -> dict[str, str]:
        here = self.directory
        settings = {
            "NODENAME": f"bench{registry}@localhost",
            "DIST_PORT": str(distribution),
            "CONFIG_FILE": str(here / "rabbitmq.conf"),
            "CONF_ENV_FILE": str(here / "none"),
            "ENABLED_PLUGINS_FILE": str(here / "enabled_plugins"),
            "MNESIA_BASE": str(here / "mnesia"),
            "LOG_BASE": str(here / "log"),
            "LOGS": "-",
            "SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }
        return {
            **os.environ,
            **{f"RABBITMQ_{name}": value for name, value in settings.items()},
            "HOME": str(here),
            "PATH": f"{erlang / 'bin'}:{os.environ['PATH']}",
            "ERL_EPMD_PORT": str(registry),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def request(self, address: str) -> dict[str, Any]:
        """See Broker."""
        return {**super().request(f"/amq/queue/{address}"), "user": _USER, "password": _USER}

    def fresh_address(self) -> str:
        """See Broker."""
        return f"bench-{next(self._numbers) % QUEUES}"


def _install(directory: Path) -> None:
    debian_unpack(_PACKAGES, directory)
    program = directory / "usr" / "lib" / "erlang" / "bin" / "erl"
    program.write_text(program.read_text().replace("/usr/lib/erlang", str(program.parents[1])))
