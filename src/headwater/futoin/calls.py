"""Handles one call from message to reply: identifies the caller, finds the function, checks rights and parameters, and
runs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Protocol, TypeVar

from ..core.access import Right
from ..core.actor import act_as
from ..core.errors import EventLogError, NotPrimary
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
"""Room in a reply for everything except its result: rid and signature."""


class Stoppable(Protocol):
    """Something that sends on a connection without being asked, until the connection ends."""

    def stop(self) -> None:
        """Stop at any point."""


Pushes = dict[tuple[object, ...], Stoppable]
"""One push at a time per key."""


class CallbackConnection(Protocol):
    """A connection on which the peer can be called back (FTN3, BiDirectChannel)."""

    @property
    def outlet(self) -> Outlet:
        """The outlet for its events."""

    @property
    def pushes(self) -> Pushes:
        """The pushes on it, by owner and component; they are stopped when the connection ends."""

    def begun(self) -> None:
        """The events that a message adds have their place in the log, so the next message may be read."""

    async def call(self, function: str, parameters: bytes) -> asyncio.Future[str | None]:
        """Call a function of the peer, in JSON; the future's result is the name of the error in the answer, or None.

        The caller sets its own timeout. Raises OSError if the peer has disconnected.
        """

    def close(self, reason: str) -> None:
        """Close it cleanly, soon."""

    def fail(self) -> None:
        """Close it after an internal error, which is logged. Call it while handling the exception."""


class Channel(Protocol):
    """The channel that a message arrived on."""

    @property
    def peer(self) -> str:
        """The peer's address, for the log."""

    @property
    def share(self) -> Share:
        """The memory that the connection holds; charged to the user once a message is verified."""

    @property
    def outlet(self) -> Outlet:
        """The outlet for its events."""

    @property
    def scope(self) -> MutableMapping[str, Any]:
        """The ASGI scope of the HTTP request."""

    @property
    def is_secure(self) -> bool:
        """Whether no third party can have read or changed the message (FTN3, SecureChannel)."""

    @property
    def authorization(self) -> bytes | None:
        """The Authorization header of the HTTP request, if it has one."""

    @property
    def certified(self) -> str | None:
        """The user named by the client's certificate, if that counts as a login."""

    @property
    def trace(self) -> Mapping[str, str]:
        """The trace from the HTTP request's header (W3C Trace Context); none for a connection."""

    @property
    def connection(self) -> CallbackConnection | None:
        """The connection, if the channel is one."""


class Call:
    """A valid call."""

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
        """`claim` holds memory for its result until that is handed to the socket."""
        self.host, self.log_name, self.channel, self.message = host, log_name, channel, message
        self.claim, self.caller, self.function, self.parameters = claim, caller, function, parameters
        self.afterwards: Callable[[], None] | None = None
        """What must start after the reply is sent."""

    @property
    def coder(self) -> Coder:
        """The coder of the reply, the same as the request's."""
        return self.message.coder

    @property
    def result_bytes_max(self) -> int:
        """The maximum size of an encoded result."""
        return self.function.reply_bytes_max - ENVELOPE_BYTES

    @property
    def page_bytes_max(self) -> int:
        """The largest page of several events; smaller for a signed reply, since signing builds all its values."""
        return self.result_bytes_max if self.caller.signature is None else min(SIGNED_BYTES_MAX, self.result_bytes_max)

    async def log(self, right: Right) -> Opened:
        """The log that the path names, if the caller has the right."""
        return await self.host.log(self.log_name, self.caller, right)

    def begun(self) -> None:
        """The events that the call adds have their place in the log, regardless of what the peer sends next."""
        if self.channel.connection is not None:
            self.channel.connection.begun()

    async def turn(self, work: Callable[[], T]) -> T:
        """Run work that scans the log when it is its caller's turn, and return its result."""
        turns = self.host.turns
        return await turns.do(turns.flow(self.caller.user.name, self.channel.peer), work)


Handler = Callable[[Call], Awaitable[bytes]]
"""Runs a function and returns its encoded result. Raises FutoInError, EventLogError."""


class Reply:
    """The reply, and what must start after it."""

    __slots__ = ("afterwards", "body", "coder")

    def __init__(self, body: bytes, coder: Coder, afterwards: Callable[[], None] | None = None) -> None:
        self.body, self.coder, self.afterwards = body, coder, afterwards


async def reply_to(
    host: Host, handlers: Mapping[tuple[str, str], Handler], log_name: str, channel: Channel, claim: Claim, body: bytes
) -> Reply:
    """The reply to a request of any bytes."""
    message = await decoded(host, body)
    if isinstance(message, Reply):
        return message
    if message.size > interface.MESSAGE_BYTES_MAX:
        # a long message is scanned several times, and each scan is a step of its own
        await asyncio.sleep(0)
    return await answer(host, handlers, log_name, channel, claim, message)


async def decoded(host: Host, body: bytes) -> Message | Reply:
    """The message, or the refusal of an invalid message, in its coder if that is known."""
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
    """The reply to a request; the caller ends `claim` once it is sent."""
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
        if host.has_lapsed():
            raise NotPrimary(log_name)
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
    """Raises FutoInError for a message longer than its function allows, before any part of it is built, and before the
    sender is known."""
    if message.size > interface.MESSAGE_BYTES_MAX and message.size > (
        at_most := interface.request_bytes_max(message.f)
    ):
        raise invalid(f"Request message too long: {message.size} bytes, at most {at_most} are allowed")


def checked(host: Host, log_name: str, channel: Channel, claim: Claim, message: Message, caller: Caller | None) -> Call:
    """The call, checked except for the caller's rights. Raises FutoInError."""
    function = _function(message, caller, channel)
    assert caller is not None
    parameters = function.check(message.parameters(function.any_parameters, function.encoded_parameters))
    return Call(host, log_name, channel, claim, message, caller, function, parameters)


def failed(host: Host, coder: Coder, rid: str | None, log_name: str, error: BaseException) -> Reply:
    """The unsigned reply to a failed call; internal errors are logged."""
    members = _members_of(host, coder, log_name, error)
    return Reply(coder.message(_with_rid(coder, rid, members)), coder)


def _members_of(host: Host, coder: Coder, log_name: str, error: BaseException) -> list[tuple[str, bytes]]:
    if isinstance(error, FutoInError):
        failure = error
    elif isinstance(error, EventLogError):
        failure = futoin_error_of(error)
        if is_fault(error):
            _logger.error("log %s: a call failed with a storage error: %s", log_name, error)
    else:
        _logger.error("a call failed", exc_info=error)
        failure = INTERNAL
    return _failure(host, coder, failure)


def refusal(host: Host, error: FutoInError, coder: Coder = JSON) -> Reply:
    """The reply to input that is not a request."""
    return Reply(coder.message(_failure(host, coder, error)), coder)


def _function(message: Message, caller: Caller | None, channel: Channel) -> Function:
    """The called function, if it may be called this way. Raises FutoInError."""
    name = message.function_name()
    try:
        function = interface.find(name)
    except FutoInError:
        if caller is None:  # do not reveal to unidentified peers which functions exist
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
    """The reply, with the request's rid, and signed like the request."""
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
