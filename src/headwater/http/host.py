"""The parts of the server that a front end's handlers need: authorization, open logs, and whether it is stopping."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ..core.access import ANYBODY, Guard, Right, User
from ..core.actor import act_as
from ..core.client_subnet import place_of
from ..core.errors import LogNotFound, StorageUnavailable
from ..core.limits import SEQUENCE_NUMBER_MAX, show
from ..core.local import LocalLog
from ..core.loop.memory import Share
from ..core.loop.open_logs import OpenLog, OpenLogs
from ..core.loop.scheduler import FairScheduler, Flow
from ..core.readers import Readers
from ..core.store import LogStore
from .asgi import MEMORY
from .authentication import authenticate
from .browsers import HEAD
from .certificates import certified
from .errors import InvalidParameter, NumberNotHereYet
from .exchange import Exchange
from .sessions import secret_of

AT_LEAST = b"headwater-at-least"
WAIT_S = 2.0
LOOK_S = 0.1
"""The interval at which a missing log is looked up again."""
T = TypeVar("T")


async def await_log(exchange: Exchange, open_log: Callable[[], Awaitable[T]]) -> T:
    """Open the log of a request that waits for a number: another server may just have created it.

    Raises LogNotFound if it does not exist after WAIT_S, or no number is requested; InvalidParameter if it is not a
    number.
    """
    is_wanted = _wanted(exchange) is not None
    loop = asyncio.get_running_loop()
    until = loop.time() + WAIT_S
    while True:
        try:
            return await open_log()
        except LogNotFound:
            if not is_wanted or loop.time() >= until:
                raise
        await asyncio.sleep(LOOK_S)


async def await_number(exchange: Exchange, log: LocalLog) -> None:
    """Wait until the log has reached the number that a request names, if any.

    Raises NumberNotHereYet if it is not reached after WAIT_S; InvalidParameter if it is not a number.
    """
    if (wanted := _wanted(exchange)) is None:
        return
    loop, is_news = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(is_news.set)

    stop = log.watch(wake)
    try:
        async with asyncio.timeout(WAIT_S):
            while log.head() < wanted and not log.is_closed:
                is_news.clear()
                await is_news.wait()
    except TimeoutError:
        raise NumberNotHereYet(wanted, log.head(), WAIT_S) from None
    finally:
        stop()


def _wanted(exchange: Exchange) -> int | None:
    """The number that a request waits for, if it names one. Raises InvalidParameter."""
    if (given := exchange.header(AT_LEAST)) is None:
        return None
    text = given.decode("latin-1")
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= SEQUENCE_NUMBER_MAX):
        allowed = f"a sequence number (0 to {SEQUENCE_NUMBER_MAX})"
        raise InvalidParameter("Headwater-At-Least", f"expected {allowed}, got {show(text)}")
    return int(text)


USER_KEY = "headwater.user"
"""Scope key of the user's name, set when it is known: shown in the connection's entity."""


def own(share: Share, user: User) -> None:
    """Charge the connection's memory to that user from now on.

    The previous one may have been another user, or have had other rights.
    """
    owner = share.owner
    if owner is None or owner.name != user.name or owner.grants is not user.grants:
        owner = share.account.owner(user.name, is_administrator=user.may(Right.MANAGE, "*"))
        owner.grants = user.grants
        share.belong(owner)


def own_by_address(share: Share, peer: str) -> None:
    """Charge the connection's memory to its address, if there are no users.

    The next request on a proxy's connection may come from another client.
    """
    place = place_of(peer)
    if share.owner is None or share.owner.name != place:
        share.belong(share.account.owner(place))


def _own_by_address(exchange: Exchange) -> None:
    """The same for a request; most addresses are places, and most connections belong to one client."""
    scope = exchange.scope
    share, client = scope.get(MEMORY), scope.get("client")
    if share is None or not client or (owner := share.owner) is None or owner.name != client[0]:
        own_by_address(exchange.share, exchange.peer)


class Host:
    """The guard, and the signal that the server stops."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.stopping = asyncio.Event()
        """Set when the server stops: streams end and new requests are refused."""

    async def user(self, exchange: Exchange) -> User:
        """The user of a request. Raises Unauthenticated."""
        if self.guard.is_open:
            _own_by_address(exchange)
            return ANYBODY
        header = exchange.header(b"authorization")
        user = self._user_shown_unasked(exchange) if header is None else None
        if user is None:
            user = await authenticate(self.guard, header, exchange.peer)
        exchange.user_name, exchange.expires_at = user.name, user.expires_at
        exchange.scope[USER_KEY] = user.name
        own(exchange.share, user)
        act_as(user.name)
        return user

    def _user_shown_unasked(self, exchange: Exchange) -> User | None:
        """The user of the console's session, or of the client's certificate. Raises Unauthenticated."""
        secret = secret_of(exchange.scope)
        user = None if secret is None else self.guard.session_user(secret, exchange.peer)
        if user is None and (name := certified(exchange.scope)) is not None:
            user = self.guard.trusted(name, exchange.peer)
        return user

    def close(self) -> None:
        """Release everything after all requests have ended."""


class LogHost(Host, Generic[T]):
    """A Host that also has the logs of one store."""

    def __init__(
        self,
        store: LogStore,
        guard: Guard,
        view: Callable[[str, LocalLog], T],
        turns: FairScheduler | None = None,
        readers: Readers | None = None,
    ) -> None:
        """`view`: see OpenLogs.

        `turns` assigns the loop's time to readers; `readers` are the readers to which events are sent.
        """
        super().__init__(guard)
        self.readers = readers or Readers()
        self.turns = turns or FairScheduler()
        self.logs = OpenLogs(store, view, self.turns)
        self.stale: Callable[[str], str | None] | None = None
        """Why a log must not be read here at present; None if it may be read. The attribute is None if all always may.
        """
        self.lacking: Callable[[str], Exception] = LogNotFound
        """The error for a log that is not here."""

    def flow(self, exchange: Exchange) -> Flow:
        """The request's share of the loop's time: by its user, after `user` was called, or by its address."""
        return self.turns.flow(exchange.user_name, exchange.peer)

    async def authorize(self, exchange: Exchange, right: Right) -> str:
        """The log's name, from the path, for a user who has the right, whether or not the log exists.

        Raises Unauthenticated, Forbidden.
        """
        name = exchange.arguments[0]
        user = await self.user(exchange)
        if user is not ANYBODY:
            self.guard.authorize(user, right, name)
        return name

    async def log(self, exchange: Exchange, right: Right) -> OpenLog[T]:
        """The log named in the path, for a user who has the right.

        Raises Unauthenticated, Forbidden, LogNotFound, StorageUnavailable, StorageCorrupted, NumberNotHereYet,
        AskPrimary.
        """
        if self.guard.is_open:
            _own_by_address(exchange)
            name = exchange.arguments[0]
        else:
            name = await self.authorize(exchange, right)
        if self.stale is not None and (stale := self.stale(name)) is not None:
            raise StorageUnavailable(reason=stale)
        opened = self.logs.get(name) or await self._open(exchange, name)
        head = exchange.scope.get(HEAD)
        if head is None or AT_LEAST in head:
            await await_number(exchange, opened.log)
        return opened

    async def _open(self, exchange: Exchange, name: str) -> OpenLog[T]:
        try:
            return await await_log(exchange, lambda: self.logs.open(name))
        except LogNotFound:
            raise self.lacking(name) from None

    def close(self) -> None:
        """Release the logs; their owner closes them."""
        self.logs.close()
