"""The addEvent that most peers send, begun without a message being made of it: one pass, and nothing that waits.

What is begun here is what `calls.answer` would do. Whatever is not plain is nothing here, for that to do or to refuse.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from ..core.access import Right
from ..core.event import Event
from . import interface
from .calls import Channel
from .errors import FutoInError
from .host import Host
from .identity import recall
from .interface import Function
from .message import PLAIN_BYTES, is_rid


class _Parameters(Struct, forbid_unknown_fields=True):
    type: str
    data: Raw


class _Request(Struct, forbid_unknown_fields=True):
    f: str
    p: _Parameters
    rid: str
    sec: Any = None


class Adding(NamedTuple):
    """An addition that has begun."""

    number: asyncio.Future[int]
    """Of the event, once it is durable."""
    rid: str
    user: str
    """Who asked for it; empty for anybody."""

    def reply(self) -> bytes:
        """What goes back, in JSON, when the number is there. Raises EventLogError."""
        return b'{"r":"%d","rid":"%b"}' % (self.number.result(), self.rid.encode())


_decode = msgspec.json.Decoder(_Request).decode


def begin(host: Host, log_name: str, channel: Channel, body: bytes) -> Adding | None:
    """Begin the addition that a message asks for, if it is a plain one, in JSON; None says nothing."""
    if body[:1] != b"{" or len(body) > PLAIN_BYTES or host.stopping.done():
        return None
    try:
        if not body.isascii():
            body.decode()  # the decoder skips over what it keeps raw
        given = _decode(body)
        data = bytes(given.p.data)
        msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    function = _additions().get(given.f)
    if function is None or not is_rid(given.rid) or not function.parameters["type"].check(given.p.type):
        return None
    if "SecureChannel" in function.requires and not channel.is_secure:
        return None
    try:
        caller = recall(host.guard, given.sec, channel.authorization)
    except FutoInError:
        return None
    opened = None if caller is None else host.opened(log_name, caller, Right.APPEND)
    if caller is None or opened is None:
        return None
    host.statistics.calls[".".join(function.key)] += 1
    number = opened.joining.append(Event(given.p.type, data, attributes=channel.trace))
    return Adding(number, given.rid, caller.user.name)


@cache
def _additions() -> dict[str, Function]:
    """The functions that add one event, by what `f` says of them."""
    return {function.name: function for function in interface.served() if function.key[1] == "addEvent"}
