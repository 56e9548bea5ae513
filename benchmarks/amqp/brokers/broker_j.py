"""Apache Qpid Broker-J, from its jars in Maven Central: there is no distribution there.

The store is Berkeley DB, which its documentation recommends for durable messages, with the default durability: a
transaction is synced before its message is accepted. (Broker-J names version 7.4.5 of it; Maven Central has 18.3.12.)
One plain port for AMQP 1.0, anonymous logins, no HTTP; queues make themselves, durable.
"""

from __future__ import annotations

import json

from ..cache import installed, maven_copy_all
from .broker import HEAP, Broker, free_port

VERSION = "10.1.0"
_ARTIFACTS = (
    f"org.apache.qpid:qpid-broker:{VERSION}",
    f"org.apache.qpid:qpid-bdbstore:{VERSION}",
    "com.sleepycat:je:18.3.12",
)
_QUEUES = [
    {
        "pattern": ".*",
        "nodeType": "queue",
        "createdOnPublish": True,
        "createdOnConsume": True,
        "attributes": {"durable": True},
    }
]


class BrokerJ(Broker):
    """A queue per measurement; reading takes the messages out of it, durably too."""

    label = "broker-j"
    version = f"{VERSION}, BDB store"
    is_warm_at_once = False

    def _start(self) -> str:
        jars = installed(
            "broker-j", " ".join(_ARTIFACTS), lambda directory: maven_copy_all(_ARTIFACTS, directory), ["java", "mvn"]
        )
        port = free_port()
        configuration = self.directory / "initial.json"
        configuration.write_text(json.dumps(_configuration(port)))
        memory = [f"-Xmx{HEAP}", f"-XX:MaxDirectMemorySize={HEAP}"]
        opened = ["--add-opens", "java.base/java.util.concurrent.atomic=ALL-UNNAMED"]
        work = ["-prop", f"qpid.work_dir={self.directory / 'work'}", "--initial-config-path", str(configuration)]
        self._spawn("java", *memory, *opened, "-cp", f"{jars}/*", "org.apache.qpid.server.Main", *work)
        self._wait_for("Qpid Broker Ready")
        return f"127.0.0.1:{port}"


def _configuration(port: int) -> dict[str, object]:
    host = {"type": "BDB", "storePath": "${qpid.work_dir}/messages", "nodeAutoCreationPolicies": _QUEUES}
    return {
        "name": "bench",
        "modelVersion": "9.1",
        "authenticationproviders": [{"name": "anyone", "type": "Anonymous"}],
        "ports": [
            {
                "name": "amqp",
                "port": str(port),
                "bindingAddress": "127.0.0.1",
                "authenticationProvider": "anyone",
                "protocols": ["AMQP_1_0"],
                "virtualhostaliases": [{"name": "default", "type": "defaultAlias"}],
            }
        ],
        "virtualhostnodes": [
            {
                "name": "default",
                "type": "JSON",
                "defaultVirtualHostNode": "true",
                "virtualHostInitialConfiguration": json.dumps(host),
            }
        ],
    }
