"""One call from its message to its reply: who asks, which function, may they, do the parameters fit, and then do it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Protocol, TypeVar

from ..core.access import Right
from ..core.actor import act_as
from ..core.errors import EventLogError
from ..core.loop.memory import Share
from ..http.host import USER_KEY, own
from .errors import INTERNAL, FutoInError, futoin_error_of, invalid, is_fault, security, stopping, unknown_interface
from .host import Host, Opened
from .identity import Caller, identify
from .messages import interface
from .messages.coders import JSON, coder_of
from .messages.interface import Function
from .messages.limits import check_long
from .messages.message import SIGNED_BYTES_MAX, VALUES_MAX, Coder, Message
from .messages.signatures import base_in_slices
from .outlet import Claim, Outlet

T = TypeVar("T")
_logger = logging.getLogger("headwater.futoin")

ENVELOPE_BYTES = 1024
"""Room in a reply for what is around its result: rid, signature."""


class Stoppable(Protocol):
    """What goes out on a connection by itself, until the connection ends."""

    def stop(self) -> None:
        """End, wherever it is."""


Pushes = dict[tuple[object, ...], Stoppable]
"""Of each key there is one at a time."""


class CallbackConnection(Protocol):
    """A connection on which the peer can be called back (FTN3, BiDirectChannel)."""

    @property
    def outlet(self) -> Outlet:
        """Where events leave it."""

    @property
    def pushes(self) -> Pushes:
        """What goes out on it, by owner and component; it is stopped when the connection ends."""

    def begun(self) -> None:
        """What a message adds has its place in the log: the next message may be looked at."""

    async def call(self, function: str, parameters: bytes) -> asyncio.Future[str | None]:
        """Call a function of the peer, in JSON; the future is the name of the error that answers, or None.

        It is for the caller to give up waiting. Raises OSError if the peer has left.
        """

    def close(self, reason: str) -> None:
        """Close it in order, soon."""

    def fail(self) -> None:
        """Close it because of a fault of ours, which is logged; to be called while that is handled."""


class Channel(Protocol):
    """What a message came through."""

    @property
    def peer(self) -> str:
        """The peer's address, for the log."""

    @property
    def share(self) -> Share:
        """What the connection holds in memory: once a message is verified, it is that user's."""

    @property
    def outlet(self) -> Outlet:
        """Where events leave it."""

    @property
    def scope(self) -> MutableMapping[str, Any]:
        """The ASGI scope of the HTTP request."""

    @property
    def is_secure(self) -> bool:
        """Whether nobody between can have read or changed the message (FTN3, SecureChannel)."""

    @property
    def authorization(self) -> bytes | None:
        """The Authorization header of the HTTP request, if there is one."""

    @property
    def certified(self) -> str | None:
        """The user whom the client's certificate names, where it counts as a login."""

    @property
    def trace(self) -> Mapping[str, str]:
        """The trace that the head of the HTTP request names (W3C Trace Context); of a connection none."""

    @property
    def connection(self) -> CallbackConnection | None:
        """The connection, if it is one."""


class Call:
    """A call that was found to be in order."""

    __slots__ = ("afterwards", "caller", "channel", "claim", "function", "host", "log_name", "message", "parameters")

    def __init__(
        self,
        host: Host,
        log_name: str,
        channel: Channel,
        claim: Claim,
        message: Message,
        caller: Caller,
        function: Function,
        parameters: Mapping[str, Any],
    ) -> None:
        """`claim` is for its result, until that is handed to the socket."""
        self.host, self.log_name, self.channel, self.message = host, log_name, channel, message
        self.claim, self.caller, self.function, self.parameters = claim, caller, function, parameters
        self.afterwards: Callable[[], None] | None = None
        """What is to be begun when the reply is on its way."""

    @property
    def coder(self) -> Coder:
        """The coder of the reply: that of the request."""
        return self.message.coder

    @property
    def result_bytes_max(self) -> int:
        """How large the result may be, encoded."""
        return self.function.reply_bytes_max - ENVELOPE_BYTES

    @property
    def page_bytes_max(self) -> int:
        """How large a page of several events may be: less where the reply is signed, which takes all of its values."""
        return self.result_bytes_max if self.caller.signature is None else min(SIGNED_BYTES_MAX, self.result_bytes_max)

    async def log(self, right: Right) -> Opened:
        """The log that the path names, if the caller has the right."""
        return await self.host.log(self.log_name, self.caller, right)

    def begun(self) -> None:
        """What the call adds has its place in the log, whatever the peer sends next."""
        if self.channel.connection is not None:
            self.channel.connection.begun()

    async def turn(self, work: Callable[[], T]) -> T:
        """The answer of some work that scans, done when it is its caller's turn."""
        turns = self.host.turns
        return await turns.do(turns.flow(self.caller.user.name, self.channel.peer), work)


Handler = Callable[[Call], Awaitable[bytes]]
"""Does what the function is for; answers its result, encoded. Raises FutoInError, EventLogError."""


class Reply:
    """What goes back, and what begins then."""

    __slots__ = ("afterwards", "body", "coder")

    def __init__(self, body: bytes, coder: Coder, afterwards: Callable[[], None] | None = None) -> None:
        self.body, self.coder, self.afterwards = body, coder, afterwards


async def reply_to(
    host: Host, handlers: Mapping[tuple[str, str], Handler], log_name: str, channel: Channel, claim: Claim, body: bytes
) -> Reply:
    """The reply to a request, whatever its bytes are."""
    message = await decoded(host, body)
    if isinstance(message, Reply):
        return message
    if message.size > interface.MESSAGE_BYTES_MAX:  # a long one is passed over a few times, each a step by itself
        await asyncio.sleep(0)
    return await answer(host, handlers, log_name, channel, claim, message)


async def decoded(host: Host, body: bytes) -> Message | Reply:
    """The message, or the refusal of what is none: in its coder, if that can be told."""
    coder: Coder = JSON
    try:
        coder = coder_of(body)
        if len(body) > VALUES_MAX:
            await check_long(body)
        return coder.decode(body)
    except FutoInError as error:
        return refusal(host, error, coder)


async def answer(
    host: Host,
    handlers: Mapping[tuple[str, str], Handler],
    log_name: str,
    channel: Channel,
    claim: Claim,
    message: Message,
) -> Reply:
    """The reply to a request; `claim` is ended when it was sent."""
    caller: Caller | None = None
    try:
        if host.stopping.done():
            raise stopping()
        check_size(message)
        caller = await identify(host.guard, message, channel.authorization, channel.certified, channel.peer)
        user = caller.user.name if caller is not None else ""
        if caller is not None and user:
            own(channel.share, caller.user)
        act_as(user)
        channel.scope[USER_KEY] = user
        call = checked(host, log_name, channel, claim, message, caller)
        name = ".".join(call.function.key)
        host.statistics.calls[name] += 1
        host.turns.activity.what = "futoin", name
        if message.size > interface.MESSAGE_BYTES_MAX:
            await asyncio.sleep(0)
        result = await handlers[call.function.key](call)
        assert caller is not None
        return Reply(await _signed(message, caller, [("r", result)]), message.coder, call.afterwards)
    except Exception as error:
        return Reply(await _signed(message, caller, _members_of(host, message.coder, log_name, error)), message.coder)


def check_size(message: Message) -> None:
    """Raises FutoInError for a message that is longer than its function takes: before anything is built of it, and
    before it is known who sent it.
    """
    if message.size > interface.MESSAGE_BYTES_MAX and message.size > (
        at_most := interface.request_bytes_max(message.f)
    ):
        raise invalid(f"Request message too long: {message.size} bytes, at most {at_most} are taken")


def checked(host: Host, log_name: str, channel: Channel, claim: Claim, message: Message, caller: Caller | None) -> Call:
    """The call, found to be in order but for the caller's rights. Raises FutoInError."""
    function = _function(message, caller, channel)
    assert caller is not None
    parameters = function.check(message.parameters(function.any_parameters, function.encoded_parameters))
    return Call(host, log_name, channel, claim, message, caller, function, parameters)


def failed(host: Host, coder: Coder, rid: str | None, log_name: str, error: BaseException) -> Reply:
    """The reply to a call that failed and was not signed; what is a fault of ours is logged."""
    members = _members_of(host, coder, log_name, error)
    return Reply(coder.message(_with_rid(coder, rid, members)), coder)


def _members_of(host: Host, coder: Coder, log_name: str, error: BaseException) -> list[tuple[str, bytes]]:
    if isinstance(error, FutoInError):
        failure = error
    elif isinstance(error, EventLogError):
        failure = futoin_error_of(error)
        if is_fault(error):
            _logger.error("%s: %s", log_name, error)
    else:
        _logger.error("a call failed", exc_info=error)
        failure = INTERNAL
    return _failure(host, coder, failure)


def refusal(host: Host, error: FutoInError, coder: Coder = JSON) -> Reply:
    """The reply to what is no request at all."""
    return Reply(coder.message(_failure(host, coder, error)), coder)


def _function(message: Message, caller: Caller | None, channel: Channel) -> Function:
    """The function that is called, if it may be called this way. Raises FutoInError."""
    name = message.function_name()
    try:
        function = interface.find(name)
    except FutoInError:
        if caller is None:  # nobody learns what there is who has not said who they are
            raise unknown_interface(name.partition(":")[0]) from None
        raise
    if "SecureChannel" in function.requires and not channel.is_secure:
        raise security("Insecure channel")
    if caller is None:
        raise security("Anonymous not allowed")
    if "BiDirectChannel" in function.requires and channel.connection is None:
        raise invalid("Bi-Direct Channel is required")
    return function


def _failure(host: Host, coder: Coder, error: FutoInError) -> list[tuple[str, bytes]]:
    host.statistics.errors[error.name] += 1
    members = [("e", coder.value(error.name))]
    return [*members, ("edesc", coder.value(error.description))] if error.description else members


async def _signed(message: Message, caller: Caller | None, members: list[tuple[str, bytes]]) -> bytes:
    """The reply: with the request's rid, and signed as the request was."""
    coder = message.coder
    _with_rid(coder, message.rid, members)
    if caller is not None and caller.signature is not None:
        text = await base_in_slices(coder.tree(coder.message(members)))
        members.append(("sec", coder.value(caller.signature.of_base(text))))
    return coder.message(members)


def _with_rid(coder: Coder, rid: str | None, members: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    if rid is not None:
        members.append(("rid", coder.value(rid)))
    return members
