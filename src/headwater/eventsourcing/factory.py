"""The factory of recorders that `eventsourcing` finds by the name of this module."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from eventsourcing.dcb.persistence import DCBInfrastructureFactory
from eventsourcing.persistence import InfrastructureFactoryError, TrackingRecorder
from eventsourcing.utils import Environment, EnvType, strtobool

from ..client import connect
from ..core.access import Forbidden
from ..core.errors import LogExists
from ..core.log import EventLog
from ..formats.settings.client_variables import CA_FILE, CREATE_LOG, LOG, PASSWORD, TOKEN, URL, USER
from ..storage import Engine
from ..storage.memory import MemoryStore
from .errors import as_theirs
from .recorder import HeadwaterRecorder

CREDENTIALS = (USER, PASSWORD, TOKEN, CA_FILE)
DEFAULT_URL = "http://127.0.0.1:8080"
DEFAULT_LOG = "events"


class OpenedLog(NamedTuple):
    """A log, and how to close it."""

    log: EventLog
    close: Callable[[], None]


def opened(env: Environment) -> OpenedLog:
    """The log that the environment names. Raises InfrastructureFactoryError, and what opening it raises."""
    url = env.get(URL) or DEFAULT_URL
    name = env.get(LOG) or DEFAULT_LOG
    is_created = bool(strtobool(env.get(CREATE_LOG) or "yes"))
    match urlsplit(url).scheme:
        case "memory":
            store = MemoryStore()
            return OpenedLog(store.create(name), store.close)
        case "file":
            return _in_directory(Path(unquote(urlsplit(url).path)), name, is_created=is_created)
        case "http" | "https" | "http+unix":
            return _on_server(url, name, env, is_created=is_created)
    raise InfrastructureFactoryError(
        f"{URL}: expected http://HOST[:PORT], https://HOST[:PORT], http+unix:///SOCKET, file:///DIRECTORY or "
        f"memory:, got {url}"
    )


def _on_server(url: str, name: str, env: Environment, *, is_created: bool) -> OpenedLog:
    user, password, token, ca_file = (env.get(variable) for variable in CREDENTIALS)
    server = connect(url, user=user, password=password, token=token, ca_file=ca_file)
    try:
        if is_created:
            with contextlib.suppress(
                LogExists, Forbidden
            ):  # it exists with other settings; or must exist, for this user
                server.ensure(name)
        return OpenedLog(server.log(name), server.close)
    except BaseException:
        server.close()
        raise


def _in_directory(directory: Path, name: str, *, is_created: bool) -> OpenedLog:
    shared = _engine(directory.resolve())
    try:
        return OpenedLog(shared.engine.create(name) if is_created else shared.engine.open(name), shared.leave)
    except BaseException:
        shared.leave()
        raise


class _SharedEngine:
    """One engine shared by all applications of this process that use its directory, which allows only one."""

    def __init__(self, directory: Path) -> None:
        self.engine, self._directory, self._users = Engine(directory), directory, 0

    def enter(self) -> None:
        self._users += 1

    def leave(self) -> None:
        with _changing:
            self._users -= 1
            if not self._users:
                del _engines[self._directory]
                self.engine.close()


_changing = threading.Lock()
_engines: dict[Path, _SharedEngine] = {}


def _engine(directory: Path) -> _SharedEngine:
    with _changing:
        shared = _engines.get(directory) or _engines.setdefault(directory, _SharedEngine(directory))
        shared.enter()
    return shared


class HeadwaterFactory(DCBInfrastructureFactory[TrackingRecorder]):
    """Creates recorders for the log that the environment names (`opening`). `close` closes all of them."""

    def __init__(self, env: Environment | EnvType | None) -> None:
        """Raises InfrastructureFactoryError, and OperationalError if the log cannot be opened."""
        super().__init__(env)
        with as_theirs:
            self._opened = opened(self.env)

    def dcb_recorder(self) -> HeadwaterRecorder:
        """A recorder of the log."""
        return HeadwaterRecorder(self._opened.log)

    def close(self) -> None:
        """Close the connections, or the log in this process. A second call does nothing."""
        close, self._opened = self._opened.close, self._opened._replace(close=_nothing)
        close()


def _nothing() -> None:
    """It is closed already."""
