"""Who manages the server: over the network, and by the command line beside it."""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from headwater.client import RemoteLog
from headwater.core.event import Event
from headwater.core.settings import LogSettings
from tests.load.clients import Client
from tests.load.place import Place, ask
from tests.matrix.world import Webhook

from .marking import Marking, text_in
from .serving import TRIMMED, Served

CNE = "/ocloudNotifications/v2"


class Operator(Client):
    """Makes, changes, trims and deletes, one thing after the other."""

    name = "operator"
    connects = partial(Place.client, retry_s=0)
    marking: Marking
    served: Served
    life = 12
    logs: ClassVar[tuple[str, ...]] = ("brief-a", "brief-b")

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.turns = 0
        self.webhook = Webhook()
        self._events = itertools.count()
        self._deeds = itertools.cycle(
            (self._trim, self._make_log, self._change_log, self._delete_log, self._subscribe, self._trim)
        )

    def close(self) -> None:
        """Let go of the webhook."""
        self.webhook.close()

    def _work(self) -> None:
        while not self._is_done():
            self.turns += 1
            next(self._deeds)(self.connection, self.turns)
            self._ending.wait(0.05)

    def _trim(self, server: Any, turn: int) -> None:
        """The consumer goes on, and then all that it has had is trimmed."""
        log: RemoteLog = server.log(TRIMMED)
        with self.marking.step("consumer", TRIMMED, "power", "operator", value=True):
            log.register_consumer("power", "operator", after=0)
        if (upto := log.head() - 40) > 10:
            with self.marking.step("position", TRIMMED, "power", "operator", value=upto):
                log.acknowledge("power", "operator", upto)
            with self.marking.step("trim", TRIMMED, value=upto - 10) as answer:
                answer["first_retained"] = log.trim(upto - 10)

    def _make_log(self, server: Any, turn: int) -> None:
        name, settings = self.logs[turn % 2], LogSettings(retention_ms=10**9 + turn, partitions=1 + turn % 3)
        if name in server.logs():
            self._remove(server, name)
        with self.marking.step("log", name, value=asdict(settings)) as answer:
            answer["incarnation"] = server.create(name, settings).info().incarnation
        for count in (1, 3):
            self._append(server.log(name), count)

    def _append(self, log: RemoteLog, count: int) -> None:
        markers = [f"good:brief:{next(self._events)}" for _ in range(count)]
        self.marking.recording.mark(sent=markers, log=log.name)
        events = [Event("Good", text_in(log.name, marker).encode(), ("brief:1",), marker) for marker in markers]
        first = log.append(events).first
        numbers = {marker: first + place for place, marker in enumerate(markers)}
        self.marking.recording.mark(acknowledged=markers, log=log.name, numbers=numbers)

    def _change_log(self, server: Any, turn: int) -> None:
        for name in server.logs():
            if name in self.logs:
                info = server.log(name).info()
                settings = replace(info.settings, retention_ms=2 * 10**9 + turn)
                with self.marking.step("log", name, value=asdict(settings)) as answer:
                    server.change(name, settings)
                    answer["incarnation"] = info.incarnation

    def _delete_log(self, server: Any, turn: int) -> None:
        for name in server.logs():
            if name in self.logs and turn % 4:
                self._remove(server, name)

    def _remove(self, server: Any, name: str) -> None:
        with self.marking.step("log", name, value=None):
            server.delete(name)

    def _subscribe(self, server: Any, turn: int) -> None:
        resource = f"/power/{turn}"
        with self.marking.step("subscription", resource, value=self.webhook.url):
            ask(self.place, "POST", f"{CNE}/publishers", {"ResourceAddress": resource})
            asked = {"ResourceAddress": resource, "EndpointUri": self.webhook.url}
            made = json.loads(ask(self.place, "POST", f"{CNE}/subscriptions", asked))
        if turn % 2:
            with self.marking.step("subscription", resource, value=None):
                ask(self.place, "DELETE", f"{CNE}/subscriptions/{quote(made['SubscriptionId'])}")


class Commander(threading.Thread):
    """What is done by the command line, beside the server."""

    def __init__(self, marking: Marking, served: Served, backups: Path) -> None:
        super().__init__(name="commander", daemon=True)
        self._marking, self._served, self._backups = marking, served, backups
        self.fault: BaseException | None = None

    def run(self) -> None:
        """Some users come, one goes, and a backup is made."""
        try:
            for name in ("bob", "carol"):
                with self._marking.step("user", name, value=True):
                    self._served.command(
                        "user", "add", name, "--grant", "read:*", "--password-stdin", stdin="correct horse\n"
                    )
            with self._marking.step("user", "bob", value=None):
                self._served.command("user", "remove", "bob")
            self._served.command("backup", str(self._backups / "backup"))
        except BaseException as error:
            self.fault = error
