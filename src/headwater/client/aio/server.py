"""A server over HTTP, for asyncio: its logs by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...core.access import Forbidden
from ...core.errors import EventLogError, LogNotFound
from ...core.log import LogInfo
from ...core.settings import LogSettings
from ..protocol import routes
from ..protocol.problems import settings_named
from ..protocol.terms import terms_of
from .log import RemoteLog  # sync: from .management import Management
from .primitives import Closing
from .transport import Transport


def connect(
    url: str | Sequence[str],
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    ca_file: str | None = None,
    is_verified: bool = True,
    timeout_s: float = 60.0,
    retry_s: float = 30.0,
    on_waiting: Callable[[EventLogError], object] | None = None,
) -> Server:
    """The server at that URL. Nothing is sent yet: the first request connects.

    With `https`, certificates are checked against the system's authorities, or those in `ca_file`; with `is_verified`
    False, they are not checked. Each answer is awaited for `timeout_s`. A request that fails because the server is away
    or overloaded is repeated for `retry_s` (0 = never); after a second of that, `on_waiting` is called with the error.
    An untrusted certificate, and TLS against plain HTTP, raise at once.

    Several URLs, as a sequence or separated by commas, are addresses of one server and its replicas. If one does not
    answer, the client tries the next at once, whatever `retry_s`, and keeps using it. It follows a replica to the
    primary that it names, with the same credentials. If a log has another incarnation there, that is an error,
    PositionOfOtherIncarnation. Raises InvalidInput.
    """
    terms = terms_of(
        url,
        user=user,
        password=password,
        token=token,
        ca_file=ca_file,
        is_verified=is_verified,
        timeout_s=timeout_s,
        retry_s=retry_s,
        on_waiting=on_waiting,
    )
    return Server(Transport(terms))


class Server(Closing):
    """A server's logs. For the tasks of one event loop; an async context manager that closes its connections."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def url(self) -> str:
        """Its URL; of several addresses, the one in use."""
        return self._transport.targets.current.address.url

    # sync: @property
    # sync: def management(self) -> Management:
    # sync:     """Management for operators: connections, links, groups, users, logs."""
    # sync:     return Management(self._transport)

    async def logs(self) -> list[str]:
        """The names of the logs that the user may read, sorted."""
        return await self._transport.call(routes.logs())

    def log(self, name: str) -> RemoteLog:
        """A log by name; its existence is checked on use. Raises InvalidLogName."""
        return RemoteLog(self._transport, name)

    async def create(self, name: str, settings: LogSettings | None = None) -> RemoteLog:
        """Create a log, or return the existing one if its settings equal these (None for the defaults).

        Raises InvalidLogName, InvalidSettings, LogExists.
        """
        await self.ensure(name, settings)
        return self.log(name)

    async def ensure(self, name: str, settings: LogSettings | None = None) -> bool:
        """Create a log unless one of that name and settings exists. Returns whether it is new. Raises as `create`."""
        with settings_named():
            return await self._transport.call(routes.ensure(name, settings))

    async def change(self, name: str, settings: LogSettings, *, drops_at_most: int = 0) -> LogInfo:
        """Change the settings of a log. Raises LogNotFound, InvalidSettings, and WouldDrop if that would drop more than
        `drops_at_most` events now.
        """
        with settings_named():
            return await self._transport.call(routes.change(name, settings, drops_at_most))

    async def delete(self, name: str) -> None:
        """Delete a log and all its events. Raises LogNotFound.

        If an answer is lost, the request is repeated for the same incarnation of the log: a log created meanwhile
        stays. If the incarnation is unknown (a server of 0.1.x, or no right to read the log), it raises OutcomeUnknown
        instead.
        """
        try:
            incarnation = await self._transport.call(routes.incarnation(name))
        except Forbidden:
            incarnation = None
        try:
            await self._transport.call(routes.delete(name, incarnation))
        except LogNotFound:
            if incarnation is None:
                raise  # otherwise an earlier attempt deleted it

    async def close(self) -> None:
        """Close the connections. The logs of this server can no longer be used."""
        await self._transport.close()
