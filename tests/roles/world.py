"""One real server whose users have one right each, everything that a refused call could change, and how to ask it."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from headwater.amqp.client import Client
from headwater.cne.feed import CONSUMER as FEED
from headwater.server.users.accounts import hash_password
from tests.server.bulk.test_bulk import WITH_FLIGHT
from tests.server.running import RunningServer

from .table import APPEND, KNOWN, MANAGE, READ, SERVER

LOG, ELSEWHERE = "orders", "elsewhere"
"""The log that calls are about, and one that they are not about."""
PASSWORD = "correct horse"
TIMEOUT_S = 60.0
WRONG_USERS = 400
TYPE = "io.headwater."
RESOURCE = "/cluster/node/n1/sync"
V1, V2 = "/ocloudNotifications/v1", "/ocloudNotifications/v2"
Target = Mapping[str, str]
"""What one call is about: what stands in its path, its name, its body."""


class Verdict(StrEnum):
    """What became of a call."""

    DONE = "done"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"


class Role(NamedTuple):
    """Somebody who calls."""

    name: str
    grants: tuple[str, ...]
    has: frozenset[str]
    """As `table.Need` counts it."""


def _role(name: str, grants: str, has: str) -> Role:
    return Role(name, tuple(grants.split()), frozenset(has.split()))


NOBODY = _role("no credentials", "", "")
WRONG = _role("wrong password", "", "")
STRANGER = _role("stranger", "all:elsewhere*", KNOWN)
READER = _role("reader", "read:orders*", f"{KNOWN} {READ}")
APPENDER = _role("appender", "append:orders*", f"{KNOWN} {APPEND}")
MANAGER = _role("manager", "manage:orders*", f"{KNOWN} {MANAGE}")
OWNER = _role("owner", "all:orders*", f"{KNOWN} {READ} {APPEND} {MANAGE}")
CHIEF = _role("chief", "manage:*", f"{KNOWN} {MANAGE} {SERVER}")
WATCHER = _role("watcher", "metrics:*", KNOWN)
KNOWN_ROLES = (STRANGER, READER, APPENDER, MANAGER, OWNER, CHIEF, WATCHER)
ROLES = (NOBODY, WRONG, *KNOWN_ROLES)
ADMIN = _role("admin", "all:*", "")
"""Who prepares calls, and looks what has changed."""


class Answer(NamedTuple):
    """What HTTP answered."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class World:
    """The server and its addresses; a context manager that ends it."""

    def __init__(self, folder: Path, *more: str, program: Sequence[str] | None = None) -> None:
        """`more`: further arguments of the server; `program`: see RunningServer."""
        (folder / "config.toml").write_text(_configuration())
        self._ending = ExitStack()
        arguments = ("--config", "config.toml", "--data", "data", *WITH_FLIGHT, *more)
        self.server = self._ending.enter_context(RunningServer(*arguments, cwd=folder, program=program))
        self.url = self.server.url
        self.amqp_url, self.flight_url = self.server.further_url("amqp"), self.server.further_url("grpc")
        self._numbers = itertools.count(1)
        self._wrong = itertools.count()
        self._clients: dict[str, Client] = {}
        self.staying: frozenset[str] = frozenset()
        """The AMQP connections of the roles."""
        self.victim = ""
        """The AMQP connection that a call is about."""

    def __enter__(self) -> World:
        try:
            self._prepare()
        except BaseException:
            self._ending.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        for client in self._clients.values():
            client.close()
        self._ending.close()

    def fresh(self, prefix: str) -> str:
        """A name that was not there before."""
        return f"{prefix}-{next(self._numbers)}"

    # Who

    def credentials(self, role: Role) -> tuple[str, str] | None:
        """A name and a password. A wrong one is of another user each time: the next try at the same one must wait."""
        if role is NOBODY:
            return None
        if role is WRONG:
            number = next(self._wrong)
            assert number < WRONG_USERS, "there must be more users to guess at"
            return f"mighty-{number}", "not the password"
        return role.name, PASSWORD

    def authorization(self, role: Role) -> dict[str, str]:
        """The header field that shows them."""
        shown = self.credentials(role)
        return (
            {} if shown is None else {"authorization": f"Basic {base64.b64encode(':'.join(shown).encode()).decode()}"}
        )

    def client(self, role: Role) -> Client:
        """The role's AMQP connection, which is kept."""
        found = self._clients.get(role.name)
        if found is None:
            found = self._clients[role.name] = self.connected(role)
        return found

    def connected(self, role: Role) -> Client:
        """Another AMQP connection of that role."""
        shown = self.credentials(role)
        user = "" if shown is None else "{}:{}@".format(*(each.replace(" ", "%20") for each in shown))
        return Client(self.amqp_url.replace("://", f"://{user}"), timeout_s=TIMEOUT_S)

    # How

    def ask(
        self, role: Role, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One HTTP request; of a stream, only the beginning is taken."""
        its = urlsplit(self.url)
        connection = http.client.HTTPConnection(its.hostname or "", its.port, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, body, {**self.authorization(role), **(headers or {})})
            answer = connection.getresponse()
            fields = {name.lower(): ", ".join(answer.headers.get_all(name, [])) for name in answer.headers}
            with answer:
                is_stream = fields.get("content-type", "").startswith("text/event-stream")
                return Answer(answer.status, fields, b"" if is_stream else answer.read())
        finally:
            connection.close()

    def told(self, method: str, path: str, body: Any = None) -> Any:
        """What the admin is answered; it must be a success."""
        sent = None if body is None else json.dumps(body).encode()
        answer = self.ask(ADMIN, method, path, sent, {"content-type": "application/json"} if sent else None)
        assert 200 <= answer.status < 300, (method, path, answer)
        return answer.json if answer.body else None

    # What there is

    def state(self) -> dict[str, Any]:
        """All that a call could change. Left out is what moves by itself: `$system`, which is told of refusals, and
        the position of the feed of notifications."""
        logs = "name incarnation head firstRetained events retentionMs keepsHistory eventBytesMax segments"
        found = {
            "log": [row for row in self._entities("log", logs) if row[0] != "$system"],
            "consumer": [
                row
                for row in self._entities("consumer", "name acknowledged epoch registeredAt")
                if not row[0].startswith("$system") and row[0] != f"{LOG}/{'/'.join(FEED)}"
            ],
            "consumerGroup": self._entities("consumerGroup", "name positions epochs"),
            "user": self._entities("user", "name grants hasPassword tokens"),
            **{kind: self._kept(kind) for kind in ("connection", "session", "link")},
            "subscription": self._entities("subscription", "name owner endpoint standing"),
            "publisher": self.told("GET", f"{V1}/publishers"),
        }
        return found

    def _kept(self, type: str) -> list[list[Any]]:
        """Connections that stay, and what is on the one that a call is about. Others may be on their way out."""
        rows = self._entities(type, "name containerId" if type != "session" else "name connection")
        return [row for row in rows if row[0].partition("/")[0] in {*self.staying, self.victim} - {""}]

    def _entities(self, type: str, names: str) -> list[list[Any]]:
        body = {"attributeNames": names.split()}
        reply = self.client(ADMIN).manage("QUERY", body, entityType=f"{TYPE}{type}")
        assert reply.status == 200, reply
        return [list(row) for row in reply.body["results"]]

    def _prepare(self) -> None:
        for name in (LOG, ELSEWHERE):
            self.told("PUT", f"/logs/{name}", {"partitions": 1})
            self.append(name)
        self.publisher(RESOURCE)
        for role in (*KNOWN_ROLES, ADMIN):
            self.told("PUT", f"/logs/{LOG}/consumers/{role.name}/KNOWN", {"after": 0})
            self.client(role).manage("GET-TYPES")
        self.staying = frozenset(row[0] for row in self._entities("connection", "name"))

    # What calls are about

    def amqp_peer(self) -> Target:
        """An AMQP connection of the admin's with one link: what `$management` calls them."""
        client, name = self.connected(ADMIN), self.fresh("victim")
        self._ending.callback(client.drop)
        client.receiver(LOG, name=name)
        [link] = [row[0] for row in self._entities("link", "name linkName") if row[1] == name]
        self.victim, session, _ = link.split("/")
        return {"connection": self.victim, "session": f"{self.victim}/{session}", "link": link}

    def http_peer(self) -> Target:
        """A connection of HTTP that stays open, of nobody's."""
        its = urlsplit(self.url)
        connection = http.client.HTTPConnection(its.hostname or "", its.port, timeout=TIMEOUT_S)
        self._ending.callback(connection.close)
        connection.request("GET", "/health/live")
        connection.getresponse().read()
        address, port = connection.sock.getsockname()
        return {"name": f"http/{address}:{port}"}

    def reader(self) -> Target:
        """A subscription of the admin's, which goes on."""
        its = urlsplit(self.url)
        connection = http.client.HTTPConnection(its.hostname or "", its.port, timeout=TIMEOUT_S)
        self._ending.callback(connection.close)
        connection.request("GET", f"/logs/{LOG}/subscribe?query=all", headers=self.authorization(ADMIN))
        self._ending.callback(connection.getresponse().close)
        return {"name": self._entities("reader", "name")[-1][0]}

    def refusal(self) -> Target:
        """What was refused to nobody in particular."""
        self.ask(NOBODY, "GET", "/logs")
        return {"name": self._entities("refusal", "name")[-1][0]}

    def append(self, log: str) -> None:
        """Two events."""
        self.told("POST", f"/logs/{log}/append", {"events": [{"type": "T", "data": "{}"}] * 2})

    def log(self) -> Target:
        """A log of its own, with events."""
        name = self.fresh(LOG)
        self.told("PUT", f"/logs/{name}", {"partitions": 1})
        self.append(name)
        return {"log": name, "name": name}

    def no_log(self) -> Target:
        """The name of a log that is not there."""
        name = self.fresh(LOG)
        return {"log": name, "name": name}

    def consumer(self) -> Target:
        """A registered consumer of its own."""
        target = self.no_consumer()
        self.told("PUT", f"/logs/{LOG}/consumers/someone/{target['component']}", {"after": 0})
        return target

    def no_consumer(self) -> Target:
        """The name of a consumer that is not there."""
        component = self.fresh("C")
        return {"log": LOG, "owner": "someone", "component": component, "name": f"{LOG}/someone/{component}"}

    def workers(self) -> Target:
        """A group and a worker that nobody has named before."""
        return {"log": LOG, "group": self.fresh("group"), "worker": "someone"}

    def publisher(self, resource: str | None = None) -> Target:
        """A publisher of the admin's, and an event of it."""
        resource = resource or f"/{self.fresh('resource')}"
        made = self.told("POST", f"{V1}/publishers", {"resource": resource})
        value = {"resource": resource, "dataType": "notification", "valueType": "enumeration", "value": "LOCKED"}
        event = {
            "id": made["id"],
            "type": "event.sync",
            "source": "/node",
            "time": "2026-01-01T00:00:00Z",
            "data": {"version": "1.0", "values": [value]},
        }
        self.told("POST", f"{V1}/create/event", event)
        return {"id": made["id"], "resource": resource}

    def subscription(self) -> Target:
        """A subscription of the admin's."""
        made = self.told("POST", f"{V1}/subscriptions", {"resource": RESOURCE, "endpointUri": self.endpoint()})
        return {"id": made["id"], "name": made["id"]}

    def endpoint(self) -> str:
        """A webhook that takes everything: the server's own, another each time."""
        return f"{self.url}{V2}/dummy?{self.fresh('n')}"


Prepare = Callable[[World], Target]


def on_log(world: World) -> Target:
    """The log that is always there."""
    return {"log": LOG, "name": LOG}


def _configuration() -> str:
    hashed = hash_password(PASSWORD)
    roles = {role.name: role.grants for role in (*KNOWN_ROLES, ADMIN)}
    users = roles | {f"mighty-{number}": ("all:*",) for number in range(WRONG_USERS)}
    tables = [
        f'[users.{name}]\npassword = "{hashed}"\ngrants = {json.dumps(list(grants))}\n'
        for name, grants in users.items()
    ]
    return "\n".join([f'[cne]\nlog = "{LOG}"\n[management]\nkeep = true\n[amqp]\nidle_ms = 1200000\n', *tables])
